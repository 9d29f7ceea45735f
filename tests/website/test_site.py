"""The built site in headless Chromium, from the file system; `make docs` builds it and runs this."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from opgen.project import read_spec
from playwright.sync_api import Browser, Page, sync_playwright

from docs.site import plots

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/docs/html"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
WIDTHS = (PHONE["width"], DESK["width"], 1920)

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert (SITE / "index.html").is_file(), "there is no site; run 'make docs'"
    # Without a Chromium of the system, that of `playwright install chromium` is taken.
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        result = playwright.chromium.launch(executable_path=path)
        yield result
        result.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails the test if it writes an error, or asks for what is not in the file system."""
    opened = browser.new_page(viewport=DESK)
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: wrong.append(request.url) if not is_local(request.url) else None)
    yield opened
    opened.close()
    assert wrong == []


def is_local(url: str) -> bool:
    return url.startswith(("file://", "data:"))


def visit(page: Page, name: str) -> None:
    page.goto((SITE / f"{name}.html").as_uri())


def ops(page: Page) -> list[str]:
    return page.locator("#matrix tbody th a").all_inner_texts()


def pages() -> list[str]:
    """Every page of the site, and of those of ops, which are laid out alike, a few."""
    names = [file.relative_to(SITE).with_suffix("").as_posix() for file in sorted(SITE.rglob("*.html"))]
    sample = {"reference/ops/gelu", "reference/ops/conv2d", "reference/ops/scaled_dot_product_attention_gradient"}
    return [name for name in names if not name.startswith(("_", "reference/ops/")) or name in sample]


def test_no_page_is_wider_than_its_window(page: Page) -> None:
    wider = {}
    for name in pages():
        visit(page, name)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if (result := page.evaluate("document.documentElement.scrollWidth")) > width:
                wider[name, width] = result
    assert wider == {}


def test_tables_of_two_columns_fit_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    for name in ("docs/from-pytorch", "docs/from-numpy"):
        visit(page, name)
        tables = page.locator("article table").all()
        assert len(tables) > 1
        for table in tables:
            assert table.evaluate("(element) => element.scrollWidth <= element.clientWidth"), table.inner_text()


def test_letters_of_plots_can_be_read(page: Page) -> None:
    """They have at least 12 px, also where a plot scrolls, and follow the theme of the page."""
    least = """() => [...document.querySelectorAll("article svg text")].map((text) => {
        const svg = text.ownerSVGElement;
        const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
        return parseFloat(getComputedStyle(text).fontSize) * scale;
    })"""
    seen = set()
    for name in pages():
        text = (SITE / f"{name}.html").read_text(encoding="utf-8").partition("<article")[2]
        assert not re.search(r"<img[^>]*\.svg", text), name
        if "<svg" not in text:
            continue
        visit(page, name)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            sizes = page.evaluate(least)
            assert min(sizes, default=12) >= 12, (name, width)
        seen.add(name)
    assert {"index", "docs/benchmarks", "docs/cpu", "reference/ops/gelu"} <= seen


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_letters_of_plots_have_contrast(page: Page, theme: str) -> None:
    # The system has the other theme: a picture that asks it would be wrong.
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    for name in ("index", "docs/benchmarks", "docs/cpu"):
        visit(page, name)
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        fill = "(element) => getComputedStyle(element).fill"
        for svg in page.locator("svg.plots").all():
            ground = svg.locator(".ground").first.evaluate(fill)
            for text in svg.locator("text").all()[:12]:
                if name == "index" and not text.get_attribute("class"):
                    continue  # in a box of its own colour
                assert ratio(text.evaluate(fill), ground) >= 4.5, (name, text.inner_html())


def test_pages_of_measurements_begin_with_what_was_found(page: Page) -> None:
    for name in ("docs/benchmarks", "docs/cpu"):
        visit(page, name)
        top = "(element) => element.getBoundingClientRect().top + scrollY"
        assert page.locator("article table").first.evaluate(top) < DESK["height"], name
        assert page.locator("svg.plots").first.evaluate(top) < 2 * DESK["height"], name
        assert page.evaluate("document.documentElement.scrollHeight") < 12_000, name


def test_the_first_column_of_a_wide_table_stays(page: Page) -> None:
    page.set_viewport_size(PHONE)
    visit(page, "docs/benchmarks")
    table = page.locator("article table").first
    cell = table.locator("tbody td").first
    before = cell.bounding_box()
    assert table.evaluate("(element) => { element.scrollLeft = 150; return element.scrollLeft; }") == 150
    assert before is not None and cell.bounding_box() == before
    # What scrolls below it does not shine through.
    assert not cell.evaluate("(element) => /, 0\\)$/.test(getComputedStyle(element).backgroundColor)")


def test_the_landing_page_leads_to_the_first_guide(page: Page) -> None:
    visit(page, "index")
    text = page.locator("article").inner_text()
    assert text.index("pip install ./generated") < text.index("import tallow as tl") < text.index("Get started")
    assert contrast(page.get_by_text("Get started", exact=True)) >= 4.5
    page.get_by_text("Get started", exact=True).click()
    assert page.url.endswith("/docs/python.html")


def test_the_matrix_searches_by_keyboard(page: Page) -> None:
    visit(page, "reference/matrix")
    full = ops(page)
    assert len(full) > 150
    assert page.locator("#matrix thead").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("conv2d")
    assert ops(page) == ["conv2d"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.backend") == "rocm"
    page.keyboard.press("Enter")
    assert "miopen: conv.by_library" in page.locator("#matrix .how").inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#matrix .how").count() == 0
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    assert ops(page) == full


def test_the_keys_go_through_the_matrix_in_order(page: Page) -> None:
    visit(page, "reference/matrix")
    page.keyboard.press("/")
    order = []
    for _ in range(7):
        order.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        page.keyboard.press("Tab")
    assert order == ["search", "backend", "dtype", "status", "internal", "SUMMARY", "A"]


def test_the_matrix_filters(page: Page) -> None:
    visit(page, "reference/matrix")
    page.select_option("#backend", label="metal")
    page.select_option("#dtype", label="f64")
    page.select_option("#status", label="what is supported")
    assert page.locator("#matrix thead th").all_inner_texts() == ["op", "metal"]
    # Metal has no f64: what is left are functions that give integers, and methods without a dtype.
    assert "gelu" not in ops(page)
    page.select_option("#status", label="what is not supported")
    page.fill("#search", "gelu")
    assert "gelu" in ops(page)
    page.locator("#matrix tbody td").first.click()
    assert "Apple GPUs have no 64-bit floats" in page.locator("#matrix .how").inner_text()
    page.fill("#search", "")
    page.select_option("#status", label="ops with gradients")
    page.select_option("#dtype", label="f32")
    assert {"gelu", "matmul"} <= {*ops(page)}
    assert not {"eq", "isnan", "sgd_step"} & {*ops(page)}


def test_internal_gradients_are_hidden_until_they_are_asked_for(page: Page) -> None:
    visit(page, "reference/matrix")
    assert not [op for op in ops(page) if "_gradient" in op]
    count = page.locator("#count").inner_text()
    assert count == f"{len(ops(page))} of {len(ops(page))} ops"
    page.check("#internal")
    assert {"fmod_gradient_y", "mul_gradients", "softmax_gradient"} <= {*ops(page)}


def test_the_matrix_says_when_nothing_matches(page: Page) -> None:
    visit(page, "reference/matrix")
    full = ops(page)
    assert page.locator("#nothing").is_hidden()
    page.fill("#search", "no such op")
    assert ops(page) == []
    assert page.locator("#nothing").inner_text() == "No op matches. Show all ops"
    page.click("#reset")
    assert ops(page) == full
    assert page.locator("#nothing").is_hidden()


def test_the_matrix_has_a_legend(page: Page) -> None:
    visit(page, "reference/matrix")
    shown = {
        name for state in page.locator("#matrix .state").all() for name in (state.get_attribute("class") or "").split()
    }
    assert shown <= {
        name for state in page.locator("#legend .state").all() for name in (state.get_attribute("class") or "").split()
    }
    page.click("#groups summary")
    assert "float" in page.locator("#groups dt").all_inner_texts()


def test_a_link_may_search(page: Page) -> None:
    visit(page, "reference/matrix")
    page.goto((SITE / "reference/matrix.html").as_uri() + "#softmax_gradient")
    page.reload()
    assert ops(page) == ["softmax_gradient", "log_softmax_gradient"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_texts_of_the_matrix_have_contrast(page: Page, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    visit(page, "reference/matrix")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    for text in ("none", "all", "float except f64"):
        actual = page.get_by_text(text, exact=True).and_(page.locator(".state")).first
        assert contrast(actual) >= 4.5, text
    for selector in ("#matrix tbody small", "#matrix tbody a", "#count", "#search", "#filters label", "#dtype"):
        assert contrast(page.locator(selector).first) >= 4.5, selector


def contrast(element: object) -> float:
    """The contrast of an element's text and what is behind it, as WCAG defines it."""
    colours = element.evaluate(  # type: ignore[attr-defined]
        """(element) => {
            const found = [getComputedStyle(element).color];
            for (let it = element; it; it = it.parentElement) {
                const colour = getComputedStyle(it).backgroundColor;
                if (!/, 0\\)$/.test(colour)) return [...found, colour];
            }
            return [...found, "rgb(255, 255, 255)"];
        }"""
    )
    return ratio(*colours)


def ratio(*colours: str) -> float:
    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_theme_switches(page: Page, theme: str) -> None:
    visit(page, "reference/matrix")
    page.locator(".theme-switch-button:visible").click()
    page.locator(f".theme-change-button[data-mode={theme}]:visible").click()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == theme


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("reshape", "api/shapes"),
        ("unsqueeze", "api/shapes"),
        ("permute", "api/shapes"),
        ("axis", "api/reductions"),
        ("learning rate", "api/optim"),
        ("set_print_options", "api/system"),
        ("concatenate", "api/joining"),
        ("arcsin", "api/elementwise"),
    ],
)
def test_the_search_finds_the_reference(browser: Browser, query: str, found: str) -> None:
    """By our names, and by those of NumPy and PyTorch."""
    # From the file system, pages cannot be fetched for excerpts: the console says so.
    page = browser.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q={query}")
    page.wait_for_function("document.querySelector('#search-results .search-summary')?.textContent.match(/\\d/)")
    links = page.locator("#search-results li > a").evaluate_all("(all) => all.map((each) => each.getAttribute('href'))")
    page.close()
    assert any(link.startswith(f"{found}.html") for link in links), links


def test_an_entry_has_a_signature_a_session_and_facts(page: Page) -> None:
    visit(page, "api/shapes")
    entry = page.locator("dl.py:has(> dt[id='tallow.Tensor.reshape'])")
    text = entry.inner_text()
    for part in (
        "Tensor.reshape(*shape: int | Sequence[int]) → Tensor",
        ">>> x.reshape(3, 2)",
        "Dtypes",
        "numpy.reshape",
    ):
        assert part in text, part
    assert entry.locator("dt a.headerlink").get_attribute("href") == "#tallow.Tensor.reshape"
    assert page.locator("table.autosummary a", has_text="Tensor.unsqueeze").first.is_visible()


def test_an_op_has_its_formula_plot_edges_speed_and_kernel(page: Page) -> None:
    visit(page, "reference/ops/gelu")
    titles = page.locator("article h2").all_inner_texts()
    assert [title.strip("#\n ") for title in titles] == [
        "Formula", "Gradient", "Plot", "In other libraries", "Speed", "Edges", "Support", "What is emitted"
    ]  # fmt: skip
    assert page.locator("svg.plot path").count() > 10
    assert "struct Gelu" in page.locator("article").inner_text()


def test_plots_are_of_the_ops_and_always_the_same() -> None:
    spec = read_spec(ROOT)
    functors = {functor.name: functor for functor in plots.plotted(spec)}
    assert len(functors) > 40
    actual = plots.curves(spec, functors["silu"], {})
    x, y = actual["silu(x)"]
    np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-12, atol=1e-15)
    x, slope = actual["its derivative by x"]
    np.testing.assert_allclose(slope, np.gradient(y, x), atol=1e-4)
    first, second = (plots.picture(functors["silu"], actual) for _ in range(2))
    assert first == second
    assert "currentColor" in first
    assert "#000000" not in first
