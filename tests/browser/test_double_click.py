"""What a double click selects, on the page of the shop, in a real browser."""

from __future__ import annotations

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from examples.fastapi_shop.formats import FORMATS, HYPHENATED


@pytest.fixture(scope="module")
def page(browser: Chrome, shop: str) -> Chrome:
    """The page of the shop, with the first twenty of thirty orders on it."""
    browser.get(shop)
    WebDriverWait(browser, 30).until(lambda _: browser.execute_script("return document.body.dataset.ready"))
    return browser


def selected(browser: Chrome, element: WebElement) -> set[str]:
    """What double clicks near the beginning, the middle and the end of *element* select."""
    texts = set()
    for part in (-0.45, 0.02, 0.45):
        browser.execute_script("getSelection().removeAllRanges()")
        clicks = ActionChains(browser, duration=0)
        clicks.move_to_element_with_offset(element, round(element.size["width"] * part), 0).double_click().perform()
        texts.add(str(browser.execute_script("return String(getSelection())")))
    return texts


def id_of(page: Chrome, name: str) -> WebElement:
    return page.find_element(By.XPATH, f"//table[@id='formats']//tr[td[1]='{name}']//code")


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_id(page: Chrome, name: str) -> None:
    """A double click anywhere on an id of this format selects the whole of it."""
    element = id_of(page, name)

    assert FORMATS[name].is_valid(element.text)
    assert selected(page, element) == {element.text}


def test_only_a_part_of_a_hyphenated_uuid(page: Chrome) -> None:
    """Hyphens separate words: a double click selects one group, or one hyphen."""
    element = id_of(page, HYPHENATED)

    assert selected(page, element) <= {*element.text.split("-"), "-"}


def test_the_ids_of_the_orders(page: Chrome) -> None:
    """Each id in the table of orders, the customer's as well, is selected whole."""
    line = page.find_element(By.CSS_SELECTOR, "#orders tbody tr")
    order, customer = line.find_elements(By.TAG_NAME, "code")

    assert order.text.startswith("order_")
    assert customer.text.startswith("customer_")
    assert selected(page, order) == {order.text}
    assert selected(page, customer) == {customer.text}


def test_older_orders(page: Chrome) -> None:
    """The button goes on behind the last order, and goes away when there are no more."""
    shown = page.find_elements(By.CSS_SELECTOR, "#orders tbody tr")
    button = page.find_element(By.ID, "more")
    before = len(shown)
    button.click()
    WebDriverWait(page, 30).until(lambda _: not button.is_displayed())
    ids = [each.text for each in page.find_elements(By.CSS_SELECTOR, "#orders td:first-child code")]

    assert before == 20
    assert len(set(ids)) == len(ids) == 30
