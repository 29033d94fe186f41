"""The labelled points of a run's life, in the order in which it passes them first. A test kills the process at each.

Those that are named as something that has happened lie between two transactions; those that end in `half` in the middle of one.
"""

POINTS = (
    "start.half",
    "run.claimed",
    "begin.half",
    "run.begun",
    "model.asked",
    "model.answered",
    "step.half",
    "step.written",
    "tool.begun",
    "tool.done",
    "result.half",
    "result.recorded",
    "task.half",
    "wait.half",
    "suspend.half",
    "run.suspended",
    "answer.half",
    "expiry.half",
    "resume.half",
    "end.half",
    "parent.half",
    "wake.half",
    "stop.half",
)
