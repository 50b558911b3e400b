"""Links between words from models of both directions."""

from collections.abc import Iterable
from typing import Literal

Link = tuple[int, int]
Symmetrization = Literal["intersection", "union", "grow_diag", "grow_diag_final_and"]
SYMMETRIZATIONS = ("intersection", "union", "grow_diag", "grow_diag_final_and")


def symmetrize(
    forward: Iterable[Link],
    backward: Iterable[Link],
    *,
    method: Symmetrization = "intersection",
) -> list[Link]:
    """Combine the links of a model with those of a model of the other direction.

    "intersection": what both have; few links, mostly right ones. "union": what either has.
    "grow_diag": the intersection, and links of the union beside links that are there already (also
    diagonally) as long as they give a token its first link.
    "grow_diag_final_and": then links of either that join two tokens without any.
    Source: Koehn et al. 2003, N03-1017; Och and Ney 2003, J03-1002.

    ```python
    there = model_alignment.merge_words().links()
    back = [(source, target) for target, source in reverse_alignment.merge_words().links()]
    symmetrize(there, back, method="grow_diag_final_and")
    ```

    Args:
        forward: pairs of source and target.
        backward: those of the other model, turned round to be pairs of source and target, too.
        method: how.

    Returns:
        The links, in order.

    Raises:
        ValueError: if there is no such method.
    """
    if method not in SYMMETRIZATIONS:
        raise ValueError(f"method must be one of {', '.join(SYMMETRIZATIONS)}, got {method!r}.")
    there, back = set(forward), set(backward)
    if method == "union":
        return sorted(there | back)
    links = there & back
    if method != "intersection":
        _grow(links, there | back)
    if method == "grow_diag_final_and":
        for one in (there, back):
            for source, target in sorted(one):
                if not (_has_source(links, source) or _has_target(links, target)):
                    links.add((source, target))
    return sorted(links)


def _grow(links: set[Link], union: set[Link]) -> None:
    """Add neighbours from the union that give a token its first link, until there are no more."""
    has_grown = True
    while has_grown:
        has_grown = False
        for source, target in sorted(links):
            for neighbour in _neighbours(source, target):
                is_free = not (
                    _has_source(links, neighbour[0]) and _has_target(links, neighbour[1])
                )
                if neighbour in union and neighbour not in links and is_free:
                    links.add(neighbour)
                    has_grown = True


def _neighbours(source: int, target: int) -> list[Link]:
    """Return the eight places around a link: straight ones first."""
    steps = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    return [(source + down, target + right) for down, right in steps]


def _has_source(links: set[Link], source: int) -> bool:
    return any(link[0] == source for link in links)


def _has_target(links: set[Link], target: int) -> bool:
    return any(link[1] == target for link in links)
