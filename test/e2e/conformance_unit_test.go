package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someTests = `
- testname: Later
  codename: '[sig-network] Services should serve [Conformance]'
- testname: Another group's
  codename: '[sig-apps] Job should run [Conformance]'
- testname: Earlier
  codename: '[sig-network] DNS should answer [LinuxOnly] [Conformance]'
- testname: Of a group whose name begins alike
  codename: '[sig-network-more] DNS should answer [Conformance]'
`

func TestListedTests_ReturnsConformanceTestsOfGroup(t *testing.T) {
	got, err := listedTests(someTests, "sig-network")
	want := []string{"[sig-network] DNS should answer [LinuxOnly] [Conformance]", "[sig-network] Services should serve [Conformance]"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, list := range map[string]string{"no test": "[]", "not a list": "testname: x", "not YAML": "[}"} {
		if got, err := listedTests(list, "sig-network"); err == nil {
			t.Errorf("%s: got %v without an error", name, got)
		}
	}
}

// TestChooseTests_PutsEachTestInExactlyOnePart checks that every test is in exactly one
// part, or is listed as left out with its reason.
func TestChooseTests_PutsEachTestInExactlyOnePart(t *testing.T) {
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprint("test ", i))
	}
	leftOut["test 4"] = "a reason"
	t.Cleanup(func() { delete(leftOut, "test 4") })
	for parts := 1; parts <= 3; parts++ {
		seen := map[string]int{}
		for part := 1; part <= parts; part++ {
			chosen, left := chooseTests(all, part, parts)
			if len(chosen)+len(left) < len(all)/parts {
				t.Errorf("part %d of %d has %d tests", part, parts, len(chosen)+len(left))
			}
			for _, name := range chosen {
				seen[name]++
			}
			for _, l := range left {
				if l.reason != "a reason" {
					t.Errorf("%s is left out for %q", l.name, l.reason)
				}
				seen["left out: "+l.name]++
			}
		}
		want := map[string]int{"left out: test 4": 1}
		for _, name := range all {
			if name != "test 4" {
				want[name] = 1
			}
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("%d parts (-want +got):\n%s", parts, diff)
		}
	}
}

const someReport = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5">
  <testsuite name="Kubernetes e2e suite">
    <testcase name="[SynchronizedBeforeSuite]" status="passed" time="1.5"></testcase>
    <testcase name="[It] [sig-network] DNS should answer [Conformance] [sig-network, Conformance]" status="passed" time="12.5">` +
	`<system-err>a log</system-err></testcase>
    <testcase name="[It] [sig-network] DNS should not answer [sig-network]" status="skipped" time="0"><skipped message="skipped">` +
	`</skipped></testcase>
    <testcase name="[It] [sig-network] Services should serve [Conformance] [sig-network, Conformance]" status="failed" time="3">` +
	`<failure message="it is refused" type="failed">[FAILED] at service.go:1</failure><system-err>connecting</system-err></testcase>
    <testcase name="[It] [sig-network] Proxy should end [Conformance] [sig-network, Conformance]" status="panicked" time="3"><error ` +
	`message="nil" type="panicked">at proxy.go:1</error></testcase>
    <testcase name="[ReportAfterSuite] report" status="failed" time="0"><failure message="no room" type="failed"></failure></testcase>
  </testsuite>
</testsuites>`

func TestReadReport_ReadsResultsAndFailures(t *testing.T) {
	got, err := readReport([]byte(someReport))
	want := []testResult{
		{Name: "[sig-network] DNS should answer [Conformance] [sig-network, Conformance]", Status: "passed", Seconds: 12.5},
		{
			Name: "[sig-network] Services should serve [Conformance] [sig-network, Conformance]", Status: "failed",
			Failure: "it is refused\n[FAILED] at service.go:1", Log: "connecting", Seconds: 3,
		},
		{
			Name: "[sig-network] Proxy should end [Conformance] [sig-network, Conformance]", Status: "panicked",
			Failure: "nil\nat proxy.go:1", Seconds: 3,
		},
		{Name: "[ReportAfterSuite] report", Status: "failed", Failure: "no room"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := readReport([]byte("<testsuites><testsuite>")); err == nil {
		t.Error("a report that is cut off is read")
	}
}

func TestJudgeTests_ReportsFailedAndMissingTests(t *testing.T) {
	const dns, services = "[sig-network] DNS should answer [Conformance]", "[sig-network] Services should serve [Conformance]"
	passed := func(name string) testResult {
		return testResult{Name: name + " [sig-network, Conformance]", Status: "passed"}
	}
	for _, c := range []struct {
		name    string
		results []testResult
		want    []string // what each fault begins with
	}{
		{"all passed", []testResult{passed(services), passed(dns)}, nil},
		{
			"one failed",
			[]testResult{passed(dns), {Name: services + " [x]", Status: "failed", Failure: "refused"}},
			[]string{"failed: " + services},
		},
		{"one timed out", []testResult{passed(dns), {Name: services, Status: "timedout"}}, []string{"timedout: " + services}},
		{"one did not run", []testResult{passed(dns)}, []string{"did not run: " + services}},
		{"none ran", nil, []string{"did not run: " + dns, "did not run: " + services}},
		{
			"one too many",
			[]testResult{passed(dns), passed(services), passed("[sig-network] Other")},
			[]string{"not a wanted test: [sig-network] Other"},
		},
		{
			"a step of the suite failed",
			[]testResult{passed(dns), passed(services), {Name: "[SynchronizedBeforeSuite]", Status: "failed"}},
			[]string{"not a wanted test: [SynchronizedBeforeSuite]"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judgeTests([]string{dns, services}, c.results)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i, fault := range got {
				if !strings.HasPrefix(fault, c.want[i]) {
					t.Errorf("got %q, want %q", fault, c.want[i])
				}
			}
		})
	}
}

func TestTestImages_SkipsOtherLinesAndPrivateImages(t *testing.T) {
	got := testImages("registry.k8s.io/e2e-test-images/agnhost:2.66.1\ngcr.io/k8s-authenticated-test/agnhost:2.6\n\na " +
		"line of a log\nregistry.k8s.io/etcd:3.7.0-0\n")
	if diff := cmp.Diff([]string{"registry.k8s.io/e2e-test-images/agnhost:2.66.1", "registry.k8s.io/etcd:3.7.0-0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
