"""One browser for all pages."""

import shutil

import pytest

from browser import Page, webdriver


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    if webdriver is None:
        pytest.skip("selenium is not installed")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    service = shutil.which("chromedriver")
    if not browser or not service:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=service))
    try:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.downloads = tmp_path_factory.mktemp("downloads")
        driver.execute_cdp_cmd(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(driver.downloads)}
        )
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def page(driver):
    driver.get_log("browser")
    yield Page(driver)
    # a page that a test leaves without an export would ask; a browser refuses that where nobody touched the page
    faults = [line for line in driver.get_log("browser") if "beforeunload" not in line["message"]]
    assert not [line for line in faults if line["level"] == "SEVERE"]
