package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"slipway.dev/slipway/internal/node/op"
)

// newLongPlan returns a plan with n steps on each of three hosts, and one on the manager.
func newLongPlan(t *testing.T, n int, diff string) *Plan {
	t.Helper()
	p := &Plan{Cluster: "prod", Operation: "apply", Removes: []string{"host w9"}}
	p.Steps = append(p.Steps, Step{Module: "pki", Task: "pki.create", Title: "create certificates", State: Change})
	for i := range n {
		for _, host := range []string{"cp1", "w1", "w2"} {
			p.Steps = append(p.Steps, Step{
				Module: "os", Task: fmt.Sprintf("os.%d", i), Title: "configure", Host: host, State: Change,
				Changes: []OpChange{{Kind: op.KindFile, Target: "/etc/x", Diff: diff}},
			})
		}
	}
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	return p
}

// readPages returns the ids of all steps that a filter selects, and the number of pages.
func readPages(t *testing.T, p *Plan, f Filter) (ids []string, pages int) {
	t.Helper()
	for {
		page, err := p.Page(f)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if page.Digest != p.Digest || len(page.Removes) != 1 || len(page.Hosts) != 4 {
			t.Errorf("page %d does not describe the plan: %+v", pages, page)
		}
		for _, s := range page.Steps {
			ids = append(ids, s.ID)
		}
		if page.Continue == "" {
			if len(ids) != page.Count {
				t.Errorf("%d steps on all pages, the last one tells %d", len(ids), page.Count)
			}
			return ids, pages
		}
		f.Continue = page.Continue
	}
}

func TestPage_SelectsSteps(t *testing.T) {
	p := newLongPlan(t, 50, "+a\n")
	for name, c := range map[string]struct {
		filter       Filter
		steps, pages int
		first, last  string
	}{
		"all":          {Filter{}, 151, 2, "pki.create@", "os.49@w2"},
		"small pages":  {Filter{Limit: 2}, 151, 76, "pki.create@", "os.49@w2"},
		"exact pages":  {Filter{Limit: 50, Host: ptr.To("w1")}, 50, 1, "os.0@w1", "os.49@w1"},
		"a host":       {Filter{Limit: 40, Host: ptr.To("w1")}, 50, 2, "os.0@w1", "os.49@w1"},
		"the manager":  {Filter{Host: ptr.To("")}, 1, 1, "pki.create@", "pki.create@"},
		"a step":       {Filter{Step: "os.7@cp1"}, 1, 1, "os.7@cp1", "os.7@cp1"},
		"unknown host": {Filter{Host: ptr.To("w3")}, 0, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ids, pages := readPages(t, p, c.filter)
			if len(ids) != c.steps || pages != c.pages {
				t.Fatalf("%d steps on %d pages, want %d on %d", len(ids), pages, c.steps, c.pages)
			}
			if c.steps > 0 && (ids[0] != c.first || ids[len(ids)-1] != c.last) {
				t.Errorf("the steps are %s to %s, want %s to %s", ids[0], ids[len(ids)-1], c.first, c.last)
			}
		})
	}
}

// TestPage_IsBounded has changes that do not fit on a page.
func TestPage_IsBounded(t *testing.T) {
	p := newLongPlan(t, 2, strings.Repeat("+a\n", maxPageBytes/7))
	if ids, pages := readPages(t, p, Filter{}); len(ids) != 7 || pages != 3 {
		t.Errorf("%d steps on %d pages, want 7 on 3", len(ids), pages)
	}
	p = newLongPlan(t, 1, strings.Repeat("+a\n", maxPageBytes))
	if ids, pages := readPages(t, p, Filter{}); len(ids) != 4 || pages != 4 {
		t.Errorf("%d steps on %d pages, want one on each", len(ids), pages)
	}
}

func TestPage_RefusesFilter(t *testing.T) {
	p, other := newLongPlan(t, 50, "+a\n"), newLongPlan(t, 51, "+a\n")
	page, err := other.Page(Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter Filter
		want   error
	}{
		"negative limit": {Filter{Limit: -1}, ErrFilter},
		"large limit":    {Filter{Limit: MaxPageSize + 1}, ErrFilter},
		"no value":       {Filter{Continue: "next"}, ErrFilter},
		"negative":       {Filter{Continue: p.Digest + "/-1"}, ErrFilter},
		"other plan":     {Filter{Continue: page.Continue}, ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.Page(c.filter); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
