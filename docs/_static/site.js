// What the theme leaves out for those who use no mouse, or no eyes.

for (const caption of document.querySelectorAll('p.caption[role="heading"]')) {
  caption.ariaLevel = "2";
}

// A table or a program that is wider than the page is scrolled with the arrow keys.
const reachable = () => {
  for (const wide of document.querySelectorAll("pre, .table-wrapper")) {
    if (wide.scrollWidth > wide.clientWidth) {
      wide.tabIndex = 0;
    } else {
      wide.removeAttribute("tabindex");
    }
  }
};
reachable();
window.addEventListener("resize", reachable);
