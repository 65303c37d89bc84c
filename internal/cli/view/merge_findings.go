package view

import (
	"fmt"
	"regexp"
	"strings"

	"slipway.dev/slipway/internal/diag"
)

// fewHosts limits how many hosts are named at the beginning of a line, and how
// many have separate lines before an operation begins.
const fewHosts = 10

// addresses matches addresses, which are the only difference between equal findings of several
// hosts, with an article and the word "address" before them. Its last group matches the
// length of a range, which is not an address.
var addresses = regexp.MustCompile(
	`(?:\b(?:the )?(?:IP )?address )?(?:\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-fA-F:]+\](?::\d+)?)(/\d+)?`)

// replaceAddresses replaces the addresses in a text.
func replaceAddresses(text, by string) string {
	return addresses.ReplaceAllStringFunc(text, func(found string) string {
		if addresses.FindStringSubmatch(found)[1] != "" {
			return found
		}
		return by
	})
}

// A sharedFinding is a finding that one or more hosts have.
type sharedFinding struct {
	diag.Diagnostic
	hosts []string
}

// mergeFindings merges findings that differ only in the host and its address, in the
// order in which they first appear.
func mergeFindings(list diag.List) []*sharedFinding {
	seen := map[diag.Diagnostic]*sharedFinding{}
	var out []*sharedFinding
	for _, d := range list {
		key := d
		key.Host, key.Message, key.Hint = "", replaceAddresses(d.Message, "the address of each host"), replaceAddresses(d.Hint, "ADDRESS")
		g := seen[key]
		if g == nil || d.Host == "" {
			g = &sharedFinding{Diagnostic: d}
			out = append(out, g)
			if d.Host != "" {
				seen[key] = g
			}
		} else {
			if g.Message != d.Message {
				g.Message = key.Message
			}
			if g.Hint != d.Hint {
				g.Hint = key.Hint
			}
		}
		g.hosts = append(g.hosts, d.Host)
	}
	return out
}

// String formats a finding with its hosts. More than fewHosts hosts follow on a
// separate line.
func (s *sharedFinding) String() string {
	d := s.Diagnostic
	switch all := strings.Join(s.hosts, ", "); {
	case len(s.hosts) <= fewHosts:
		d.Host = all
		return d.String()
	default:
		d.Host = fmt.Sprintf("%d hosts", len(s.hosts))
		return d.String() + "\n    hosts: " + all
	}
}
