# Everything a developer does here. Each target first makes .venv what requirements.lock says, when it is not.

BIN := .venv/bin
READY := .venv/.ready
# More than two cores need: the tests wait for processes and servers as much as they compute.
PARALLEL := -n 4 --dist worksteal
ARGS ?=

# Where this is set, each of the many processes here would compile all that it imports anew: two thirds of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test check fix bench soak lock

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

run: $(READY) ## start the server with the demo team; ARGS="module:app --port 8000" are its arguments
	$(BIN)/stigmergy serve $(or $(ARGS),examples/demo/team.py:app)

test: $(READY) ## all tests, the checks included; ARGS="-k lease" are pytest's
	@$(BIN)/pytest -q -m "serial and not soak" $(ARGS) || [ $$? -eq 5 ] # 5: none selected
	@$(BIN)/pytest -q -m "not serial and not soak" $(PARALLEL) $(ARGS)

check: $(READY) ## lint, format, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

fix: $(READY) ## what can be repaired and made by itself
	$(BIN)/python scripts/generate_client.py
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python scripts/generate_docs.py

bench: $(READY) ## every benchmark, one after the other
	@missed=; for file in $$(grep -l __main__ bench/*.py); do \
		echo "== $$file"; PYTHONPATH=tests $(BIN)/python "$$file" || missed="$$missed $$file"; \
	done; [ -z "$$missed" ] || { echo "not as promised:$$missed" >&2; exit 1; }

soak: $(READY) ## the tests that run for minutes
	@$(BIN)/pytest -m soak --timeout 0 $(ARGS)

lock: ## requirements.lock from pyproject.toml; ARGS=--upgrade moves every pin
	@command -v uv >/dev/null || { echo "make lock needs uv: python3 -m pip install uv" >&2; exit 1; }
	uv pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes \
		--no-header --no-annotate --quiet --output-file requirements.lock $(ARGS)

$(READY): requirements.lock pyproject.toml scripts/environment
	@sh scripts/environment
	@touch $@
