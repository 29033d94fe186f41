"""Programs named on the command line: `module:app`, or `path/to/file.py:app`. What is named must be an `App`."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Annotated

from cyclopts import Parameter

from stigmergy.app import App
from stigmergy.errors import Invalid, StigmergyError

Program = Annotated[str, Parameter(help="Where the program's App is: `module:app`, or `path/to/file.py:app`.")]
WHERE = "program"


def load_program(named: str) -> App:
    """Import the program, and give its App. `Invalid` says what of the name leads nowhere."""
    place, _, attribute = named.rpartition(":")
    if not place or not attribute:
        raise Invalid(f"{named!r} is no program; name its App, such as `module:app` or `path/to/file.py:app`", WHERE)
    module = _of_file(Path(place)) if place.endswith(".py") else _of_name(place)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise Invalid(f"{place} has no {attribute!r}{_meant(module)}", WHERE)
        found = getattr(found, name)
    if not isinstance(found, App):
        raise Invalid(f"{named} is {_article(type(found).__name__)}, and not an App of stigmergy{_meant(module)}", WHERE)
    return found


def _meant(module: ModuleType) -> str:
    """The names that would have done."""
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"; it has an App named {', '.join(apps)}" if apps else ""


def _article(name: str) -> str:
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Invalid(f"there is no file {path}", WHERE)
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Invalid(f"{path} is no Python file", WHERE)
    _look_in(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _of_name(name: str) -> ModuleType:
    _look_in(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Invalid(f"there is no module {error.name}, here or among what is installed", WHERE) from None
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _look_in(folder: Path) -> None:
    """What a program imports from beside itself is found, as when Python runs it."""
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, place)


def _broken(name: str, error: Exception) -> Invalid:
    """A program that cannot be imported, with the line of it that failed."""
    if isinstance(error, SyntaxError):
        return Invalid(f"{name} cannot be imported: {error}", WHERE)
    installed = ("<", sys.prefix, sys.base_prefix)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(installed)]
    at = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    what = str(error) if isinstance(error, StigmergyError) else f"{type(error).__name__}: {error}"
    return Invalid(f"{name} cannot be imported: {what}{at}", WHERE)
