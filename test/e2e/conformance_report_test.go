package e2e

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// leftOut are conformance tests that do not run here, each with its reason.
var leftOut = map[string]string{}

// A skippedTest is a conformance test that does not run, and why.
type skippedTest struct{ name, reason string }

// A testResult holds the report of one test that ran.
type testResult struct {
	Name, Status, Failure string
	// Log is the output of a failed test.
	Log     string
	Seconds float64
}

// listedTests returns the names of a group's conformance tests, sorted, from the
// list that the suite prints.
func listedTests(list, sig string) ([]string, error) {
	var tests []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal([]byte(list), &tests); err != nil {
		return nil, fmt.Errorf("reading the list of conformance tests: %w", err)
	}
	var names []string
	for _, t := range tests {
		if strings.HasPrefix(t.Codename, "["+sig+"] ") {
			names = append(names, t.Codename)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no conformance test belongs to %s", sig)
	}
	slices.Sort(names)
	return names, nil
}

// chooseTests returns the tests of one part, of as many as there are parts, and the
// tests of that part that are left out. Neighbours, which are of one kind, are
// spread over the parts.
func chooseTests(all []string, part, parts int) (chosen []string, left []skippedTest) {
	for i, name := range all {
		if i%parts != part-1 {
			continue
		}
		if reason, ok := leftOut[name]; ok {
			left = append(left, skippedTest{name, reason})
			continue
		}
		chosen = append(chosen, name)
	}
	return chosen, left
}

// focusOn is the expression that selects a test by its name.
func focusOn(name string) string { return regexp.QuoteMeta(name) }

// readReport returns the tests that ran, from a JUnit report of Ginkgo. A step
// that belongs to no test counts if it failed.
func readReport(text []byte) ([]testResult, error) {
	type problem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string   `xml:"name,attr"`
				Status  string   `xml:"status,attr"`
				Time    float64  `xml:"time,attr"`
				Failure *problem `xml:"failure"`
				Error   *problem `xml:"error"`
				Log     string   `xml:"system-err"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("reading the report: %w", err)
	}
	var results []testResult
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			name, isTest := strings.CutPrefix(c.Name, "[It] ")
			selected := c.Status != "skipped" && c.Status != "pending"
			if !selected || !isTest && c.Status == "passed" {
				continue
			}
			r := testResult{Name: name, Status: c.Status, Seconds: c.Time}
			for _, p := range []*problem{c.Failure, c.Error} {
				if p != nil {
					r.Failure, r.Log = strings.TrimSpace(p.Message+"\n"+p.Text), c.Log
				}
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// judgeTests returns what is wrong with results: a test that failed, one that did
// not run, and one that was not wanted.
func judgeTests(want []string, results []testResult) []string {
	var faults []string
	ran := map[string]bool{}
	for _, r := range results {
		i := slices.IndexFunc(want, func(name string) bool { return r.Name == name || strings.HasPrefix(r.Name, name+" [") })
		if i < 0 {
			faults = append(faults, fmt.Sprintf("not a wanted test: %s (%s): %s", r.Name, r.Status, r.Failure))
			continue
		}
		ran[want[i]] = true
		if r.Status != "passed" {
			faults = append(faults, fmt.Sprintf("%s: %s after %.0f s: %s", r.Status, want[i], r.Seconds, r.Failure))
		}
	}
	for _, name := range want {
		if !ran[name] {
			faults = append(faults, "did not run: "+name)
		}
	}
	return faults
}

// testImages returns the images that the suite lists, one a line.
func testImages(list string) []string {
	var refs []string
	for line := range strings.Lines(list) {
		ref := strings.TrimSpace(line)
		// Nothing but an image of this registry needs a login; tests expect to be refused there.
		if strings.Contains(ref, "/") && strings.Contains(ref, ":") && !strings.HasPrefix(ref, "gcr.io/k8s-authenticated-test/") {
			refs = append(refs, ref)
		}
	}
	return refs
}
