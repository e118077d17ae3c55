"""Drawings for notebooks: plain text and HTML of the same thing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from malflow.drawing.boxes import boxes
from malflow.drawing.picture import Dataflow, picture_of
from malflow.drawing.svg import svg
from malflow.errors import MissingDependency
from malflow.nodes import Port

__all__ = ["notebook_display", "picture_bundle", "refresh"]


def picture_bundle(dataflow: Dataflow, here: Port | None = None) -> dict[str, str]:
    """Return a dataflow as text and as a picture in HTML, by MIME type, with a mark at an output if asked for."""
    picture = picture_of(dataflow, here)
    shows_stages = picture.stages > 1
    figure = svg(picture, stages=shows_stages)
    return {
        "text/plain": boxes(picture, stages=shows_stages),
        "text/html": f'<div style="overflow-x:auto">{figure}</div>',
    }


def notebook_display() -> Callable[..., Any]:
    """Return the function that displays an object in a notebook.

    Raises:
        MissingDependency: if IPython is not installed.
    """
    try:
        display: Callable[..., Any] = import_module("IPython.display").display
    except ImportError as missing:
        raise MissingDependency(
            "watch() draws with IPython, which is not installed; call it in a notebook, or pip install ipython; "
            "elsewhere, print(handle.progress) or malflow top show the run",
            name="IPython",
        ) from missing
    return display


def refresh(shown: Any, display: Callable[..., Any], wait: Callable[[], bool]) -> None:
    """Display an object, and redraw it in the same place after each wait.

    Args:
        shown: the object.
        display: displays it, as ``IPython.display.display`` does.
        wait: waits for the next drawing; returns whether it is the last one.
    """
    place = display(shown, display_id=True)
    is_last = False
    while not is_last:
        is_last = wait()
        if place is None:  # a shell that can't redraw, such as the Python prompt
            display(shown)
        else:
            place.update(shown)
