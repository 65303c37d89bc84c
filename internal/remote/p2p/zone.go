package p2p

// A zone is a set of hosts, each of which has transferred content to or from another one in it:
// they are assumed to reach each other. Two zones are separate if a host of one could not
// reach a host of the other: their hosts do not try each other.
type zone struct {
	hosts []*host
	apart map[*zone]bool
}

// mayReach reports whether h could reach g, as far as is known.
func (h *host) mayReach(g *host) bool {
	return !h.missed[g] && !h.zone.apart[g.zone]
}

// recordUnreachable records that h could not reach g.
func (h *host) recordUnreachable(g *host) {
	h.missed[g] = true
	if h.zone != g.zone {
		h.zone.apart[g.zone], g.zone.apart[h.zone] = true, true
	}
}

// joinZones records that by could reach g, so that their zones become one.
func (c *Content) joinZones(by, g *host) {
	c.works, g.proved = true, true
	into, from := g.zone, by.zone
	if into == from {
		return
	}
	if len(into.hosts) < len(from.hosts) {
		into, from = from, into
	}
	for _, h := range from.hosts {
		h.zone = into
	}
	into.hosts = append(into.hosts, from.hosts...)
	for z := range from.apart {
		delete(z.apart, from)
		if z != into {
			z.apart[into], into.apart[z] = true, true
		}
	}
}
