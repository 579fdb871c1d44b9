"""The pages for review and verification in a browser."""

import csv
import io
import time

import pytest

from wior.cleaning.review.guard import unguard

try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.select import Select
except ImportError:
    webdriver = ActionChains = Keys = Select = None


class Page:
    def __init__(self, driver):
        self.driver = driver
        self.run = driver.execute_script

    def open(self, path, width=1280, height=900, scheme="light"):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(path.as_uri())

    def find(self, name):
        return self.driver.find_element("id", name)

    def text(self, name):
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def click(self, name):
        self.find(name).click()

    def until(self, condition):
        """Waits until the script's value is true, and returns it."""
        limit = time.monotonic() + 10
        while not (value := self.run(f"return {condition}")):
            assert time.monotonic() < limit, condition
            time.sleep(0.02)
        return value

    def reload(self):
        """The page again, with what the browser keeps for it."""
        self.until("localStorage.length > 0")
        self.driver.refresh()
        if self.run("return localStorage.length") == 0:  # of other pages too: then it is no fault of this one
            pytest.skip("the browser has lost all that it kept")

    def load(self, file):
        """Imports a file, and returns what the page says of it."""
        self.run("document.getElementById('message').textContent = ''")
        self.find("import-file").send_keys(str(file))
        return self.until("document.getElementById('message').textContent")

    def downloaded(self, name):
        """The bytes of an exported file, which is then gone."""
        file = self.driver.downloads / name
        limit = time.monotonic() + 10
        while not file.exists():
            assert time.monotonic() < limit, name
            time.sleep(0.02)
        content = file.read_bytes()
        file.unlink()
        return content

    def answer(self, question, answer):
        self.click(question)
        self.click(answer)
        self.after_frames("")

    def keys(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def busy(self):
        """Milliseconds of processor time that the page has taken, which other processes do not lengthen."""
        metrics = self.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def after_frames(self, script, *values):
        """Runs the script, waits for two frames, and says for how many milliseconds the page was busy."""
        before = self.busy()
        self.driver.execute_async_script(
            f"const done = arguments[arguments.length - 1]; {script};"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()))",
            *values,
        )
        return self.busy() - before

    def choose(self, name, value):
        script = "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        script += "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true}))"
        return self.after_frames(script, name, str(value))

    def search(self, words):
        self.choose("search", words)
        time.sleep(0.2)

    def shown(self):
        """Ids of the cards in the document, which are all where rows are few and the window is high."""
        return self.run("return [...document.querySelectorAll('.card .id')].map(e => e.textContent)")

    def decisions(self):
        return self.run("return review.csv()")


def rows_text(number):
    return f"{number} row" if number == 1 else f"{number} rows"


def read_decisions(text):
    lines = [*csv.reader(io.StringIO(text, newline=""))]
    return [tuple(map(unguard, line)) for line in lines]
