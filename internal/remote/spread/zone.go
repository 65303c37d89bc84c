package spread

// A zone is hosts of which each has got something from another of them, or given
// it: they are taken to reach each other. Zones of which a host of one could not
// reach a host of the other are apart: their hosts do not try each other.
type zone struct {
	hosts []*host
	apart map[*zone]bool
}

// mayReach says that nothing speaks against it.
func (h *host) mayReach(g *host) bool {
	return !h.missed[g] && !h.zone.apart[g.zone]
}

// misses notes that h could not reach g.
func (h *host) misses(g *host) {
	h.missed[g] = true
	if h.zone != g.zone {
		h.zone.apart[g.zone], g.zone.apart[h.zone] = true, true
	}
}

// reached notes that by could reach g, so that their zones are one.
func (c *Content) reached(by, g *host) {
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
