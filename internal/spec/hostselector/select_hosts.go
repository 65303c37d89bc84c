// Package hostselector selects hosts of a cluster by name, address, pattern and role, as
// users write them at the command line.
package hostselector

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
)

// Ids of messages.
const (
	idUnknownHost     = "unknown-host"
	idAmbiguousHost   = "ambiguous-host"
	idInvalidSelector = "invalid-selector"
)

// maxRange limits a range in a selector.
const maxRange = 10_000

// SelectHosts returns the hosts of a selector, each once, in the order of the file. A selector
// is a comma-separated list of names, addresses, ranges of names (node[2:10],
// edge-[01:20].lan; both ends included), patterns of names (db-*, node?) and roles
// (role=worker); "all" is every host. An IPv6 address can be in brackets, in any
// spelling. The cluster must have its defaults. The error is a diag.List of all items
// that match no host, or an address of several hosts.
func SelectHosts(c *v1alpha1.Cluster, selector string) ([]v1alpha1.Host, error) {
	hosts, problems := SelectSomeHosts(c, selector)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return hosts, nil
}

// SelectSomeHosts works like SelectHosts, and also returns the matched hosts if an item of the
// selector matches none.
func SelectSomeHosts(c *v1alpha1.Cluster, selector string) ([]v1alpha1.Host, diag.List) {
	chosen := make([]bool, len(c.Spec.Hosts))
	var problems diag.List
	for term := range strings.SplitSeq(selector, ",") {
		term = strings.TrimSpace(term)
		problems = append(problems, chooseTerm(c, term, chosen)...)
	}
	var out []v1alpha1.Host
	for i, h := range c.Spec.Hosts {
		if chosen[i] {
			out = append(out, h)
		}
	}
	return out, problems
}

func chooseTerm(c *v1alpha1.Cluster, term string, chosen []bool) diag.List {
	if key, value, ok := strings.Cut(term, "="); ok {
		return chooseRole(c, key, value, chosen)
	}
	if term == spec.AllHosts {
		for i := range chosen {
			chosen[i] = true
		}
		return nil
	}
	if pattern, ok := globPattern(term); ok {
		return choosePattern(c, pattern, chosen)
	}
	names, problem := expandRange(inBrackets(term))
	if problem != "" {
		return selectorError(idInvalidSelector, problem, "write a range as node[2:10]")
	}
	var problems diag.List
	for _, name := range names {
		problems = append(problems, chooseHost(c, name, chosen)...)
	}
	return problems
}

// inBrackets returns the address that a term has in brackets, else the term.
func inBrackets(term string) string {
	if inner, ok := strings.CutPrefix(term, "["); ok && strings.HasSuffix(inner, "]") {
		if _, err := netip.ParseAddr(strings.TrimSuffix(inner, "]")); err == nil {
			return strings.TrimSuffix(inner, "]")
		}
	}
	return term
}

func selectorError(id, message, hint string) diag.List {
	return diag.List{{ID: id, Severity: diag.Error, Message: message, Hint: hint}}
}

func chooseRole(c *v1alpha1.Cluster, key, value string, chosen []bool) diag.List {
	if key != "role" {
		return selectorError(idInvalidSelector, "hosts cannot be selected by "+strconv.Quote(key),
			"use names, addresses, ranges, patterns or role=worker")
	}
	found := false
	for i, h := range c.Spec.Hosts {
		if spec.HasRole(h, v1alpha1.Role(value)) {
			chosen[i], found = true, true
		}
	}
	if found {
		return nil
	}
	var roles []string
	for _, h := range c.Spec.Hosts {
		for _, r := range h.Roles {
			roles = append(roles, string(r))
		}
	}
	return selectorError(idUnknownHost, "no host has the role "+strconv.Quote(value), diag.DidYouMean(value, uniqueWords(roles)))
}

// globPattern reports whether a term is a pattern. Brackets belong to ranges and addresses.
func globPattern(term string) (string, bool) {
	return term, strings.ContainsAny(term, "*?") && !strings.ContainsAny(term, "[]\\")
}

func choosePattern(c *v1alpha1.Cluster, pattern string, chosen []bool) diag.List {
	found := false
	for i, h := range c.Spec.Hosts {
		if ok, err := path.Match(pattern, h.Name); err == nil && ok {
			chosen[i], found = true, true
		}
	}
	if found {
		return nil
	}
	return selectorError(idUnknownHost, "no host name matches "+strconv.Quote(pattern), "use one of these hosts: "+listFew(hostNames(c)))
}

// listFew lists the first of many names.
func listFew(names []string) string {
	if len(names) > 8 {
		return strings.Join(names[:8], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// A Choice is the part of a selector for one cluster, or for all clusters whose names
// match a pattern.
type Choice struct {
	Cluster  string // "" is the current cluster
	Selector string
}

// SplitByCluster splits a selector by clusters: CLUSTER@ before a term applies to it and to the
// following terms, up to the next one.
func SplitByCluster(selector string) []Choice {
	var out []Choice
	for term := range strings.SplitSeq(selector, ",") {
		term = strings.TrimSpace(term)
		cluster, rest, named := strings.Cut(term, "@")
		switch {
		case named:
			out = append(out, Choice{cluster, rest})
		case len(out) == 0:
			out = append(out, Choice{"", term})
		default:
			out[len(out)-1].Selector += "," + term
		}
	}
	return out
}

func chooseHost(c *v1alpha1.Cluster, name string, chosen []bool) diag.List {
	at := hostsCalled(c, name)
	switch len(at) {
	case 0:
		return selectorError(idUnknownHost, "there is no host "+strconv.Quote(name), spec.SuggestWord(name, hostNames(c)))
	case 1:
		chosen[at[0]] = true
		return nil
	}
	var several []string
	for _, i := range at {
		several = append(several, c.Spec.Hosts[i].Name)
	}
	return selectorError(idAmbiguousHost, name+" is the address of several hosts: "+listFew(several), "use a host name")
}

// hostsCalled returns the host with a name, else the hosts at an address: it can be the
// node address of one host and the SSH address of another, or a gateway.
func hostsCalled(c *v1alpha1.Cluster, name string) (at []int) {
	address := spec.CanonicalIP(name)
	for i, h := range c.Spec.Hosts {
		if h.Name == name {
			return []int{i}
		}
		if h.Address == address || h.InternalAddress == address {
			at = append(at, i)
		}
	}
	return at
}

func hostNames(c *v1alpha1.Cluster) []string {
	var out []string
	for _, h := range c.Spec.Hosts {
		out = append(out, h.Name)
	}
	return out
}

func uniqueWords(words []string) []string {
	set := map[string]bool{}
	for _, w := range words {
		set[w] = true
	}
	return slices.Sorted(maps.Keys(set))
}

var rangeSyntax = regexp.MustCompile(`^([^\[\]]*)\[(\d{1,9}):(\d{1,9})\]([^\[\]]*)$`)

// expandRange returns the names of node[2:10]; leading zeros of the first number set the
// width. A term without brackets is returned unchanged.
func expandRange(term string) (names []string, problem string) {
	if term == "" {
		return nil, "the selector has an empty item"
	}
	if !strings.ContainsAny(term, "[]") {
		return []string{term}, ""
	}
	m := rangeSyntax.FindStringSubmatch(term)
	if m == nil {
		return nil, strconv.Quote(term) + " is not a range of names"
	}
	from, _ := strconv.Atoi(m[2]) // digits by the expression
	to, _ := strconv.Atoi(m[3])
	if from > to || to-from >= maxRange {
		return nil, fmt.Sprintf("the range %q is empty or has more than %d names", term, maxRange)
	}
	width := 0
	if m[2][0] == '0' {
		width = len(m[2])
	}
	for i := from; i <= to; i++ {
		names = append(names, fmt.Sprintf("%s%0*d%s", m[1], width, i, m[4]))
	}
	return names, ""
}
