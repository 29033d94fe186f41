"""What the timers of spaces do when they are due, and so what any process that keeps them running needs."""

from collections.abc import Mapping

from stigmergy.kernel.timers import Effect
from stigmergy.spaces.asking import ASK, ask_person
from stigmergy.spaces.clients import CLIENT, forget_client
from stigmergy.spaces.ending import TELL, tell_failure
from stigmergy.spaces.keeping import PLAN, carry_out
from stigmergy.spaces.visibility import SHOW, show_answer

EFFECTS: Mapping[str, Effect] = {
    PLAN: carry_out,
    TELL: tell_failure,
    ASK: ask_person,
    SHOW: show_answer,
    CLIENT: forget_client,
}
