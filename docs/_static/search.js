// Excerpts of results are fetched, which browsers refuse to pages that are opened from disk.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
