package view

import (
	"fmt"
	"regexp"
	"strings"

	"slipway.dev/slipway/internal/diag"
)

// fewHosts is how many hosts are named at the beginning of a line, and how
// many have lines of their own before an operation begins.
const fewHosts = 10

// addresses are what differs between findings that are the same on several
// hosts.
var addresses = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-fA-F:]+\](:\d+)?`)

// A same is one finding of one or more hosts.
type same struct {
	diag.Diagnostic
	hosts []string
}

// fold puts findings together that are the same on several hosts but for the
// host's address, in the order of the first ones.
func fold(list diag.List) []*same {
	seen := map[diag.Diagnostic]*same{}
	var out []*same
	for _, d := range list {
		key := d
		key.Host, key.Message, key.Hint = "", addresses.ReplaceAllString(d.Message, "its address"), addresses.ReplaceAllString(d.Hint, "ADDRESS")
		g := seen[key]
		if g == nil || d.Host == "" {
			g = &same{Diagnostic: d}
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

// String is one finding with its hosts. Where they are many, they follow in a
// line of their own.
func (s *same) String() string {
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
