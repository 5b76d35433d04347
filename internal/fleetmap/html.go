package fleetmap

import (
	"crypto/sha256"
	_ "embed" // the page's style and script
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// page is what the script is given.
type page struct {
	Picture
	Owners []string `json:"owners"`
}

// HTML writes a picture as one page, which loads nothing and runs nothing but its own script: its policy names that by its
// digest. The data is JSON in which encoding/json writes <, > and & as escapes, so that no name ends the element that it is in.
func HTML(w io.Writer, p Picture) error {
	data, err := json.Marshal(page{p, p.owners()})
	if err != nil {
		return err
	}
	after := ""
	if p.After != nil {
		after = `<label>Before and after the plan <input type="range" id="slider" min="0" max="100" step="10" value="0" ` +
			`aria-describedby="shown"><span id="shown" class="soft"></span></label>
<label class="check"><input type="checkbox" id="changed">only what changes</label>
`
	}
	notes := ""
	for _, note := range p.Notes {
		notes += `<p class="note">` + plain(note) + "</p>\n"
	}
	_, err = fmt.Fprintf(w, `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'">
<meta name="generator" content="gpu-agent map">
<link rel="icon" href="data:,">
<title>%s</title>
<style>%s</style>
</head>
<body>
<a class="skip" href="#fleet">To the hosts</a>
<header>
<h1>%s</h1>
<p>%s</p>
%s<noscript><p class="note">The hosts are drawn by this page's own script, which is switched off here.
gpu-agent map -o text and -o svg need none.</p></noscript>
<form aria-label="Filter">
<label>Owner <select id="owner"><option value="">all</option><option value="-">held, no owner</option></select></label>
<label>VM or share <input type="search" id="vm" autocomplete="off" spellcheck="false"></label>
<label>Model <select id="model"><option value="">all</option></select></label>
%s</form>
<p id="count" role="status"></p>
<ul id="legend" aria-label="Legend"></ul>
</header>
<main id="fleet" tabindex="-1" aria-label="Hosts"></main>
<section id="pools" aria-label="Pools"></section>
<section id="turns" aria-label="Turns"></section>
<div id="detail" role="region" aria-label="Details" aria-live="polite"></div>
<script type="application/json" id="data">%s</script>
<script>%s</script>
</body>
</html>
`, digest(pageStyle), digest(pageScript), plain(p.Title), pageStyle, plain(p.Title), plain(p.summary()), notes, after, data, pageScript)
	return err
}

// digest is by what a page's policy knows a script or a style.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
