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
	showFlag = flag.String("show", "",
		"list the findings in `packages or files`, separated by commas; DIR/... for a tree of packages, all for everything")
	groupFlag  = flag.String("group", "", "with -show: only this `group` of rules, as a failed test names it")
	sampleFlag = flag.Int("sample", 0, "print a random sample of this `number` of texts that users see")
	seedFlag   = flag.Uint64("seed", 1, "with -sample: the `seed`")
)

// TestLanguage_HasNoFindings fails for texts and comments that break a rule on language.
func TestLanguage_HasNoFindings(t *testing.T) { requireNoFindings(t, languageFindings(theTree(t))) }

// requireNoFindings fails the test for each group of findings of a package or page.
func requireNoFindings(t *testing.T, findings map[string][]finding) {
	t.Helper()
	for _, where := range slices.Sorted(maps.Keys(findings)) {
		count := map[string]int{}
		for _, f := range findings[where] {
			count[f.group]++
		}
		for _, group := range slices.Sorted(maps.Keys(count)) {
			t.Errorf("%s: %s: %d findings. List them: go test ./internal/archtest -run Show -v -show %s -group %s",
				where, group, count[group], where, group)
		}
	}
}

// TestLanguage_ShowsSelectedFindings lists the findings that -show selects.
func TestLanguage_ShowsSelectedFindings(t *testing.T) {
	if *showFlag == "" {
		return
	}
	tree := theTree(t)
	findings := languageFindings(tree)
	for where, more := range sizeFindings(tree) {
		findings[where] = append(findings[where], more...)
	}
	count, places := 0, 0
	for _, where := range slices.Sorted(maps.Keys(findings)) {
		if !isSelected(where, *showFlag) {
			continue
		}
		places++
		for _, f := range findings[where] {
			if *groupFlag == "" || *groupFlag == f.group {
				count++
				fmt.Fprintln(os.Stdout, f)
			}
		}
	}
	fmt.Fprintf(os.Stdout, "%d findings\n", count)
	if places == 0 {
		t.Errorf("the tree has no package or file %s", *showFlag)
	}
}

// isSelected reports whether the value of -show names a package or file.
func isSelected(where, show string) bool {
	return slices.ContainsFunc(strings.Split(show, ","), func(pattern string) bool {
		pattern = strings.TrimPrefix(path.Clean(pattern), "./")
		return pattern == "all" || coversPath(pattern, where)
	})
}

// TestLanguage_PrintsRandomSample prints the random sample that -sample asks for: texts of
// four or more words in the code, each with its place.
func TestLanguage_PrintsRandomSample(t *testing.T) {
	if *sampleFlag <= 0 {
		return
	}
	all := textsOf(theTree(t))
	var visible []text
	for _, where := range slices.Sorted(maps.Keys(all)) {
		for _, t := range all[where] {
			if t.inProgram() && len(strings.Fields(t.body)) >= 4 {
				visible = append(visible, t)
			}
		}
	}
	random := rand.New(rand.NewPCG(*seedFlag, 0))
	random.Shuffle(len(visible), func(i, j int) { visible[i], visible[j] = visible[j], visible[i] })
	sample := visible[:min(*sampleFlag, len(visible))]
	for _, t := range sample {
		fmt.Fprintf(os.Stdout, "%s:%d: %s: %q\n", t.file, t.line, t.kind, t.body)
	}
	fmt.Fprintf(os.Stdout, "%d of %d texts\n", len(sample), len(visible))
}
