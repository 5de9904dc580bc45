// Excerpts of results are fetched, which browsers refuse to pages that are opened from disk.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// What the theme leaves unnamed, or names otherwise than it shows, for readers who hear the page.
addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll(".search-button-field")) button.ariaLabel = "Search Ctrl+K";
  for (const summary of document.querySelectorAll(".bd-links summary")) summary.ariaLabel = "Pages below";
});
