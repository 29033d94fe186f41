"""Names of tenants that can stand anywhere as they are, and ids that sort by time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stigmergy.errors import Invalid
from stigmergy.kernel.ids import check_tenant, new_id
from stigmergy.kernel.postgres_schema import tenants_setting
from stigmergy.kernel.transaction import SHARED, Scope


@pytest.mark.parametrize("tenant", ["main", "a", "0", "acme-inc.example", "mia@example.com", "A_b:c", "x" * 128])
def test_a_tenant_may_be_named_so(tenant: str) -> None:
    assert check_tenant(tenant) == tenant
    assert Scope(tenant).tenant == tenant


REFUSED = [
    "",
    "a,b",
    "a'b",
    'a"b',
    "*",
    "!",
    "x" * 129,
    " a",
    "a ",
    "a\n",
    "a/b",
    "a\\b",
    "-a",
    ".",
    "..",
    "ä",
    "a\0b",
    "a;b",
    "{a}",
]


@pytest.mark.parametrize("tenant", REFUSED, ids=ascii)
def test_a_tenant_may_not_be_named_so(tenant: str) -> None:
    with pytest.raises(Invalid, match="tenant") as caught:
        check_tenant(tenant)
    assert caught.value.where == "tenant"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("tenant", sorted(set(REFUSED) - {SHARED}), ids=ascii)
def test_no_unit_runs_on_behalf_of_a_tenant_with_such_a_name(tenant: str) -> None:
    """On PostgreSQL a name is part of a setting: `a,b` would see two tenants, `!` all of them."""
    with pytest.raises(Invalid):
        Scope(tenant)


def test_the_shared_tenant_has_a_name_that_no_tenant_can_have() -> None:
    assert Scope(SHARED).tenant == SHARED


@given(st.text(max_size=140))
def test_a_name_that_is_allowed_is_one_item_of_a_list_and_no_end_of_a_literal(tenant: str) -> None:
    try:
        check_tenant(tenant)
    except Invalid:
        return
    assert tenants_setting([tenant]).split(",") == [tenant, "*"]
    assert "'" not in tenants_setting([tenant])


def test_ids_are_unlike_and_grow() -> None:
    made = [new_id() for _ in range(10_000)]
    assert len(set(made)) == 10_000
    assert made == sorted(made)
    assert {len(id) for id in made} == {36}
