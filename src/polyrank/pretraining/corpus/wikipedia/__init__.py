"""MediaWiki dumps to articles: XML to pages, wikitext to paragraphs with links, redirects."""
