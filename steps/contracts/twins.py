"""The validated twins of an instance: constants of its tests that can be changed so that the reference patch fails."""

from __future__ import annotations

from typing import ClassVar

from swe_argo.steps.contracts.record import Part, Place, Record

TWINS_VERSION = 2
"""Version of the search for sites and their validation; files of other versions are not used."""


class Neighbour(Part):
    """A test with another input, and the expected value that the reference patch returns for it."""

    site: str
    """The key of the expected value's site."""
    spans: list[tuple[int, int]]
    """Byte ranges of the input in the test file, where one value may occur several times."""
    text: str
    """The source of the other input."""
    expected: str
    """The source of the expected value."""


class ValidatedTwins(Record):
    """The sites of an instance's tests, tested on the reference patch."""

    file: ClassVar[str] = "twins.json"
    place: ClassVar[Place] = Place.INSTANCE
    version: int = TWINS_VERSION
    instance_id: str
    row_sha256: str
    """The hash of the normalised row."""
    image: str
    image_digest: str | None = None
    """None if the validating run did not know it."""
    needs_network: bool = False
    """Whether the reference patch passes only with a network."""
    fail_to_pass: list[str] = []
    """The listed tests that fail without the reference patch."""
    passed: list[str] = []
    """The listed tests that are PASSED on the reference patch; no other has sites."""
    sites: dict[str, list[str]] = {}
    """Test id -> keys of its validated strong sites (``swe_argo.steps.grading.twins.sites.Site.key``)."""
    neighbours: list[Neighbour] = []
    """Tests with other inputs that the reference patch passes and the untouched repository fails."""
    unreported: list[str] = []
    """Tests with sites that the log does not report when they fail: Django's runner names only a failed subtest."""
    base: dict[str, str | None] = {}
    """Test file -> its content in a fresh sandbox; None if the test patch creates it."""
    reference_paths: list[str] = []
    """Files beside the tests that the reference patch changes; changes to these are no findings for this instance."""
    seconds: float = 0.0
    """Duration of the reference patch's tests."""
    runs: int = 0
    """Test runs of the reference patch that validated the sites."""
    reason: str = ""
    """Why no FAIL_TO_PASS test has a site; empty if one has."""
