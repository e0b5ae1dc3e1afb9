"""The helpdesk page in a real browser, in each of its states."""

from __future__ import annotations

import pytest
from support.web_helpdesk import Program

from examples.helpdesk.formats import FORMATS, HYPHENATED

pytest.importorskip("selenium")
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

WIDTHS = [390, 1280]


class Page:
    """The helpdesk page in the browser."""

    def __init__(self, browser: Chrome, program: Program) -> None:
        self.browser, self.program = browser, program

    def open(self, link: str, width: int = 1280) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.browser.get("about:blank")
        self.browser.get(link)
        self.until("document.body.dataset.ready === 'yes'")

    def until(self, condition: str) -> None:
        WebDriverWait(self.browser, 30).until(lambda _: self.browser.execute_script(f"return {condition}"), condition)

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.browser.find_elements(By.CSS_SELECTOR, selector)]

    def tickets(self) -> list[str]:
        self.until("document.querySelector('#loading').hidden")
        return self.texts("#tickets li button")

    def choose(self, selector: str, text: str) -> None:
        Select(self.find(selector)).select_by_visible_text(text)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(
            self.browser.execute_script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def selected(self, element: WebElement) -> set[str]:
        """Return what double clicks near the beginning, the middle and the end of *element* select."""
        texts = set()
        for part in (-0.45, 0.02, 0.45):
            self.browser.execute_script("getSelection().removeAllRanges()")
            clicks = ActionChains(self.browser, duration=0)
            clicks.move_to_element_with_offset(element, round(element.size["width"] * part), 0).double_click().perform()
            texts.add(str(self.browser.execute_script("return String(getSelection())")))
        return texts


@pytest.fixture
def page(browser: Chrome, program: Program) -> Page:
    return Page(browser, program)


@pytest.mark.parametrize("width", WIDTHS)
def test_signing_in_and_out(page: Page, width: int) -> None:
    """Without a token, the page shows a form, which rejects a wrong token; signing out discards the token."""
    link = page.program.links["Ada"]
    address, _, token = link.partition("#")
    page.open(address, width)
    assert page.find("#login").is_displayed()
    assert not page.find("#desk").is_displayed()
    page.find("#login input").send_keys("login_guessed")
    page.find("#login button").click()
    page.until("!document.querySelector('#login .wrong').hidden")
    assert page.find("#login .wrong").text == "This token is unknown or has expired."
    page.find("#login input").send_keys(token)
    page.find("#login button").click()
    page.until("!document.querySelector('#desk').hidden")
    assert page.find("#me").text == "Ada, Analytical Engines"
    assert len(page.tickets()) == 20
    assert page.overflow() == 0
    page.find("#leave").click()
    page.browser.refresh()
    page.until("document.body.dataset.ready === 'yes'")
    assert page.find("#login").is_displayed()


def test_a_link_with_a_token(page: Page) -> None:
    """The page removes the token from the URL; following another user's link replaces the token in the open page."""
    page.open(page.program.links["Ada"])
    assert "#" not in page.browser.current_url
    page.browser.get(page.program.links["Eve"])
    page.until("document.querySelector('#me').textContent.startsWith('Eve')")
    page.until("document.querySelectorAll('#tickets li').length === 3")


def test_more_tickets(page: Page) -> None:
    """The button loads the tickets after the last one, and disappears when there are no more."""
    page.open(page.program.links["Ada"])
    assert page.find("#count").text == "20 of 30"
    page.find("#more").click()
    page.until("document.querySelector('#more').hidden && document.querySelectorAll('#tickets li').length === 30")
    assert len(set(page.texts("#tickets code"))) == 30
    assert page.find("#count").text == "30 of 30"


@pytest.mark.parametrize("width", WIDTHS)
def test_filters_and_the_empty_list(page: Page, width: int) -> None:
    """Filters narrow the list; if no ticket matches, a button resets them."""
    page.open(page.program.links["Ada"], width)
    page.choose("#status", "closed")
    page.until("document.querySelector('#count').textContent === '10 of 10'")
    page.choose("#sort", "most urgent first")
    assert len(page.tickets()) == 10
    page.choose("#tag", "question")
    page.until("!document.querySelector('#empty').hidden")
    assert (page.find("#empty p").text, page.tickets(), page.overflow()) == ("No ticket matches.", [], 0)
    page.find("#empty button").click()
    page.until("document.querySelector('#count').textContent === '20 of 30'")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_new_ticket(page: Page, width: int) -> None:
    """A ticket is created once, however often the form is submitted, and comes first in the list."""
    page.open(page.program.links["Ada"], width)
    page.find("#new").click()
    page.find("#ticket [name=subject]").send_keys("Tea is cold <b>")
    page.choose("#ticket [name=assignee]", "Grace")
    page.find("#tags input").click()
    assert page.overflow() == 0
    page.browser.execute_script(
        "const form = document.querySelector('#ticket');"
        "for (let i = 0; i < 3; i++) form.dispatchEvent(new SubmitEvent('submit', { cancelable: true }))"
    )
    page.until("!document.querySelector('dialog').open && document.querySelector('#count').textContent === '20 of 31'")
    assert page.tickets()[0] == "Tea is cold <b>"
    assert "for Grace" in page.texts("#tickets .facts")[0]
    assert "#billing" in page.texts("#tickets .facts")[0]


def test_a_change_and_a_comment(page: Page) -> None:
    """The dialog shows a ticket and its comments, adds a comment, and saves changes."""
    page.open(page.program.links["Ada"])
    page.find("#tickets li button").click()
    page.until("document.querySelectorAll('#comments li').length === 1")
    page.find("#talk textarea").send_keys("Done.")
    page.find("#talk form button").click()
    page.until("document.querySelectorAll('#comments li').length === 2")
    assert page.texts("#comments li")[1].endswith("Done.")
    page.choose("#ticket [name=status]", "waiting")
    page.choose("#ticket [name=assignee]", "nobody")
    page.find("#ticket .main").click()
    page.until("!document.querySelector('dialog').open")
    page.until("document.querySelector('#tickets .pill')?.textContent === 'waiting'")
    assert "for nobody" in page.texts("#tickets .facts")[0]


def test_what_the_service_refuses(page: Page) -> None:
    """An error is shown beside the form, which keeps the input."""
    page.open(page.program.links["Ada"])
    page.find("#new").click()
    subject = page.find("#ticket [name=subject]")
    page.browser.execute_script("arguments[0].removeAttribute('maxlength')", subject)
    subject.send_keys("x" * 201)
    page.find("#ticket .main").click()
    page.until("!document.querySelector('#ticket .wrong').hidden")
    assert page.find("#ticket .wrong").text.startswith("subject: ")
    assert subject.get_property("value") == "x" * 201


def test_a_service_that_has_gone(page: Page) -> None:
    """If the service cannot be reached, the list shows the error and a retry button."""
    page.open(page.program.links["Ada"])
    page.program.end()
    page.choose("#status", "open")
    page.until("!document.querySelector('#error').hidden")
    assert page.find("#error p").text == "The service cannot be reached."
    page.find("#error button").click()
    page.until("!document.querySelector('#error').hidden && document.querySelector('#loading').hidden")


# --- double clicks


@pytest.fixture
def formats(page: Page) -> Page:
    """Return the page with its table of formats open."""
    page.open(page.program.links["Ada"])
    page.find("summary").click()
    return page


def test_the_whole_id(formats: Page) -> None:
    """A double click anywhere on an id selects the whole of it, in every format."""
    path = "//table[@id='formats']//tr[td[1]='{}']//code"
    elements = {name: formats.browser.find_element(By.XPATH, path.format(name)) for name in FORMATS}
    ids = {name: element.text for name, element in elements.items()}
    assert {name: id for name, id in ids.items() if not FORMATS[name].is_valid(id)} == {}
    assert {name: formats.selected(element) for name, element in elements.items()} == {
        name: {ids[name]} for name in ids
    }


def test_only_a_part_of_a_hyphenated_uuid(formats: Page) -> None:
    """Hyphens separate words: a double click selects one group, or one hyphen."""
    element = formats.browser.find_element(By.XPATH, f"//table[@id='formats']//tr[td[1]='{HYPHENATED}']//code")
    assert formats.selected(element) <= {*element.text.split("-"), "-"}


def test_the_id_of_a_ticket(page: Page) -> None:
    """A double click on the id of a ticket selects and copies it."""
    page.open(page.program.links["Ada"])
    element = page.find("#tickets code")
    assert element.text.startswith("ticket_")
    assert page.selected(element) == {element.text}
    # the test cannot read the clipboard of a headless browser
    page.browser.execute_script("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.selected(element)
    page.until(f"window.copied === '{element.text}' && !document.querySelector('#copied').hidden")
    page.until("document.querySelector('#copied').hidden")
