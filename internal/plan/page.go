package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// PageKind is the kind of a Page.
const PageKind = "PlanPage"

// The number of steps on a page.
const (
	DefaultPageSize = 100
	MaxPageSize     = 500
)

// maxPageBytes limits the changes on a page, in bytes of text. A page has one step at least.
const maxPageBytes = 1 << 20

// A Page is a part of a plan. It tells how much there is in the whole plan.
type Page struct {
	APIVersion string `json:"apiVersion"`
	KindName   string `json:"kind"`
	Cluster    string `json:"cluster"`
	Operation  string `json:"operation"` // the kind of the operation
	Digest     string `json:"digest"`    // of the plan: an approval names it
	// Removes lists hosts and data that would be lost.
	Removes []string `json:"removes,omitempty"`
	// Hosts counts the steps of the whole plan by host, in the order of their first steps.
	Hosts []HostSteps `json:"hosts"`
	// Count is the number of steps that the filter selects, on all pages.
	Count int        `json:"count"`
	Steps []PageStep `json:"steps"`
	// Continue selects the next page, "" on the last one.
	Continue string `json:"continue,omitempty"`
}

// HostSteps is the number of steps on a host. The name of the manager is "".
type HostSteps struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
}

// A PageStep is a step with its id, "task@host".
type PageStep struct {
	ID string `json:"id"`
	Step
}

// A Filter selects a page of a plan. The zero value selects the first page of all steps.
type Filter struct {
	// Host selects the steps of a host. "" is the manager, and nil selects all steps.
	Host *string
	// Step selects the step with an id, "": all.
	Step string
	// Limit is the number of steps on a page, up to MaxPageSize. Default: DefaultPageSize.
	Limit int
	// Continue is the value of an earlier page of the same plan, with the same Host and Step.
	Continue string
}

// Errors of a filter.
var (
	ErrFilter  = errors.New("the selection of a page is not valid")
	ErrChanged = errors.New("the plan has changed since the first page was read; start with the first page again")
)

// ID returns the name of a step within its plan.
func (s *Step) ID() string { return s.Task + "@" + s.Host }

// Page returns a part of the plan. The error is ErrFilter or ErrChanged.
func (p *Plan) Page(f Filter) (*Page, error) {
	limit := f.Limit
	if limit == 0 {
		limit = DefaultPageSize
	}
	if limit < 1 || limit > MaxPageSize {
		return nil, fmt.Errorf("%w: the limit is %d, and must be from 1 to %d", ErrFilter, f.Limit, MaxPageSize)
	}
	first, err := p.readContinue(f.Continue)
	if err != nil {
		return nil, err
	}
	out := &Page{
		APIVersion: APIVersion, KindName: PageKind, Cluster: p.Cluster, Operation: p.Operation, Digest: p.Digest,
		Removes: p.Removes, Hosts: p.countSteps(), Steps: []PageStep{},
	}
	size := 0
	for i := range p.Steps {
		s := &p.Steps[i]
		if f.Host != nil && *f.Host != s.Host || f.Step != "" && f.Step != s.ID() {
			continue
		}
		out.Count++
		if out.Count <= first || out.Continue != "" {
			continue
		}
		if n := len(out.Steps); n == limit || n > 0 && size+s.size() > maxPageBytes {
			out.Continue = p.Digest + "/" + strconv.Itoa(out.Count-1)
			continue
		}
		size += s.size()
		out.Steps = append(out.Steps, PageStep{s.ID(), *s})
	}
	return out, nil
}

// readContinue returns the number of steps on earlier pages.
func (p *Plan) readContinue(text string) (first int, err error) {
	if text == "" {
		return 0, nil
	}
	digest, number, _ := strings.Cut(text, "/")
	first, err = strconv.Atoi(number)
	switch {
	case err != nil || first < 0:
		return 0, fmt.Errorf("%w: continue is not the value of an earlier page", ErrFilter)
	case digest != p.Digest:
		return 0, ErrChanged
	}
	return first, nil
}

// countSteps counts the steps by host.
func (p *Plan) countSteps() []HostSteps {
	out, at := []HostSteps{}, map[string]int{}
	for i := range p.Steps {
		host := p.Steps[i].Host
		if _, known := at[host]; !known {
			at[host] = len(out)
			out = append(out, HostSteps{Name: host})
		}
		out[at[host]].Steps++
	}
	return out
}

// size returns the size of the changes of a step, in bytes.
func (s *Step) size() (n int) {
	for i := range s.Changes {
		n += len(s.Changes[i].Summary) + len(s.Changes[i].Diff)
	}
	return n
}
