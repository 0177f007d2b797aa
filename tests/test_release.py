"""What is released agrees with itself: version, places, Pythons, actions, what an index shows."""

import datetime as dt
import re
import shutil
import subprocess
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml

from pytest_dlperf.model.judgement import Verdict

ROOT = Path(__file__).parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def one(pattern, text=PROJECT):
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return str(found)


VERSION = one(r'^version = "(.+)"$')
HOME = one(r'^Source = "(.+)"$')
SITE = one(r'^Documentation = "(.+)"$')


def citation():
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_names_the_version_and_the_places_of_the_package():
    cited = citation()
    assert (cited["version"], cited["repository-code"], cited["url"]) == (VERSION, HOME, SITE)
    assert cited["title"] == one(r'^name = "(.+)"$')
    assert cited["abstract"] == one(r'^description = "(.+)"$')


def test_every_place_that_names_the_repository_names_the_same():
    named = {
        name
        for file in (ROOT / "pyproject.toml", ROOT / "CHANGELOG.md", *ROOT.glob(".github/**/*.yml"))
        for name in re.findall(
            r"github(?:usercontent)?\.com/([\w-]+/pytest-dlperf)", file.read_text(encoding="utf-8")
        )
    }
    assert named == {HOME.removeprefix("https://github.com/")}


def test_the_changelog_links_its_versions_and_has_the_package_s_or_the_next():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = dict(re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changes, re.MULTILINE))
    assert headings.pop("Unreleased") == ""
    assert not headings or next(iter(headings)) == VERSION
    assert all(headings.values())
    linked = re.findall(rf"^\[(.+)\]: {re.escape(HOME)}/", changes, re.MULTILINE)
    assert linked == ["Unreleased", *headings]


def test_a_release_is_prepared_and_its_notes_are_those_of_its_section(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", ".ci/release"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)

    def release(*arguments):
        return subprocess.run(
            [tmp_path / ".ci" / "release", *arguments], capture_output=True, text=True, check=False
        )

    assert release("notes", "v9.8.7").returncode != 0
    assert release("prepare", "9.8.7").returncode == 0
    undated = release("notes", "v9.8.6")
    assert undated.returncode != 0
    assert "v9.8.6" in undated.stderr
    first = release("notes", "v9.8.7")
    assert first.returncode == 0
    assert first.stdout.strip().startswith("The first release.\n\n### Added\n\n- ")
    assert "[Unreleased]: " not in first.stdout
    links = re.findall(r"\]\(([^)]+)\)", first.stdout)
    assert f"{HOME}/blob/v9.8.7/docs/gate.md" in links
    assert all(link.startswith(f"{HOME}/blob/v9.8.7/") for link in links)

    assert release("prepare", "9.9.0").returncode == 0
    assert release("notes", "v9.9.0").stdout.strip() == ""
    changes = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changes.endswith(
        f"[Unreleased]: {HOME}/compare/v9.9.0...HEAD\n[9.9.0]: {HOME}/releases/tag/v9.9.0\n"
        f"[9.8.7]: {HOME}/releases/tag/v9.8.7\n"
    )
    cited = yaml.safe_load((tmp_path / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == "9.9.0"
    assert cited["date-released"] == dt.datetime.now(dt.UTC).date()


def test_the_pythons_of_the_classifiers_are_those_that_ci_tests():
    claimed = re.findall(r"Python :: (3\.\d+)\"", PROJECT)
    assert claimed[0] == one(r'^requires-python = ">=(.+)"$')
    (ci,) = (yaml.safe_load(file.read_text("utf-8")) for file in WORKFLOWS if file.stem == "ci")
    # One more is tried before it is claimed.
    assert ci["jobs"]["wheel"]["strategy"]["matrix"]["python"][:-1] == claimed
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert one(r"^for version in (3.+); do$", script).split() == [claimed[0], claimed[-1]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_actions_are_pinned_by_digest_with_their_version(workflow):
    used = re.findall(r"uses: (.*)$", workflow.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    for action in used:
        if action.startswith("$/"):  # a workflow of this repository
            assert (ROOT / action.removeprefix("$/")).is_file()
            continue
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_a_publication_may_do_nothing_but_publish():
    (file,) = (file for file in WORKFLOWS if file.stem == "release")
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    with_identity = {
        name: job
        for name, job in workflow["jobs"].items()
        if "id-token" in job.get("permissions", {})
    }
    assert list(with_identity) == ["publish"]
    publish = with_identity["publish"]
    assert publish["environment"] == "pypi"
    assert not any("run" in step or "checkout" in step["uses"] for step in publish["steps"])
    assert publish["needs"] == "ci"


def test_the_table_of_verdicts_has_each_with_what_becomes_of_its_test():
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    table = page.partition("| verdict |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| .* \|$", table, re.MULTILINE)
    of_cases = {"lost", "not judged", "not measured", "expected", "accepted", "recorded"}
    assert {name: colour.strip() for name, colour in rows} == {
        verdict.value: ""
        if verdict is Verdict.SKIPPED
        else "green, red if strict"
        if verdict is Verdict.ENVIRONMENT_SHIFT
        else "green"
        if verdict.passes
        else "red"
        for verdict in Verdict
        if verdict not in of_cases
    }


def test_the_description_of_the_package_links_to_its_repository_and_not_into_nothing():
    """On a package index the README stands alone."""
    package = metadata("pytest-dlperf").json
    text = str(package["description"])
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    assert all(re.match(r"https://|#", target) for target in targets)
    own = {target for target in targets if HOME in target}
    assert own
    assert all(f"/v{VERSION}/" in target for target in own | {t for t in targets if ".svg" in t})
