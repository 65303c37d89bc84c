package archtest

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var (
	showFlag   = flag.String("show", "", "list what breaks the rules of language in `packages or files`, by commas; DIR/... for a tree, all for everything")
	groupFlag  = flag.String("group", "", "with -show: only this `group` of rules: words, terms, length, titles, comments or tests")
	sampleFlag = flag.Int("sample", 0, "print a random sample of this `number` of texts that users see")
	seedFlag   = flag.Uint64("seed", 1, "with -sample: the `seed`")
)

// TestLanguageShow lists the findings that -show asks for.
func TestLanguageShow(t *testing.T) {
	if *showFlag == "" {
		return
	}
	findings := languageFindings(theTree(t))
	count := 0
	for _, where := range slices.Sorted(maps.Keys(findings)) {
		if !asked(where, *showFlag) {
			continue
		}
		for _, f := range findings[where] {
			if *groupFlag == "" || *groupFlag == f.group {
				count++
				fmt.Fprintln(os.Stdout, f)
			}
		}
	}
	fmt.Fprintf(os.Stdout, "%d findings\n", count)
}

// asked reports whether -show names a package or file.
func asked(where, show string) bool {
	return slices.ContainsFunc(strings.Split(show, ","), func(pattern string) bool {
		pattern = strings.TrimPrefix(path.Clean(pattern), "./")
		return pattern == "all" || covers(pattern, where)
	})
}

// TestLanguageSample prints the sample that -sample asks for: strings and
// titles in the code, each with its place.
func TestLanguageSample(t *testing.T) {
	if *sampleFlag <= 0 {
		return
	}
	all := textsOf(theTree(t))
	var visible []text
	for _, where := range slices.Sorted(maps.Keys(all)) {
		for _, t := range all[where] {
			if strings.HasSuffix(t.file, ".go") && t.kind != kindComment && t.kind != kindTest {
				visible = append(visible, t)
			}
		}
	}
	random := rand.New(rand.NewPCG(*seedFlag, 0)) //nolint:gosec // a sample for reviews, not a secret
	random.Shuffle(len(visible), func(i, j int) { visible[i], visible[j] = visible[j], visible[i] })
	for _, t := range visible[:min(*sampleFlag, len(visible))] {
		fmt.Fprintf(os.Stdout, "%s:%d: %s: %q\n", t.file, t.line, t.kind, t.body)
	}
	fmt.Fprintf(os.Stdout, "%d of %d texts\n", min(*sampleFlag, len(visible)), len(visible))
}
