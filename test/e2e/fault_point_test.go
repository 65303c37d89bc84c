package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A moment is when something befalls a run: after an event, and then not
// before a time has passed, or while a program is at work on that host.
type moment struct {
	name string
	at   func(happening) bool
	// wait is the time from the event on.
	wait time.Duration
	// program is the beginning of a command line, a word each; the moment is
	// when that runs on the event's host. Without it none needs to.
	program []string
	// latest is an event after which there is nothing to wait for.
	latest func(happening) bool

	armed *armed
}

// armed is a moment that is near.
type armed struct {
	since      time.Time
	step, host string
	due        bool
}

// momentAfter is the end of a step.
func momentAfter(boundary string) *moment {
	return &moment{name: "after " + boundary, at: func(h happening) bool { return h.boundaryName() == boundary }}
}

// inTransfer is the middle of a blob's way to a host.
func inTransfer() *moment {
	return &moment{name: "inside a blob transfer", at: happening.isTransferring}
}

// inPhase is the middle of a phase of kubeadm, "kubeadm.init.certs" or
// "join.kubelet-start": the program has been seen at work on the host; ""
// is any.
func inPhase(task, host string) *moment {
	verb, phase := "init", strings.TrimPrefix(task, "kubeadm.init.")
	if p, ok := strings.CutPrefix(task, "join."); ok {
		verb, phase = "join", p
	}
	program := []string{"kubeadm", verb, "phase", phase}
	if strings.HasPrefix(phase, "addon-") {
		program[3] = "addon" // of which there is more than one
	}
	name := "inside " + task
	if host != "" {
		name += "@" + host
	}
	return &moment{name: name, program: program, at: func(h happening) bool {
		return h.beginsTask(task) && (host == "" || h.Host == host)
	}}
}

// noteEvent notes an event: a moment may come near, come, or pass.
func (m *moment) noteEvent(h happening, now time.Time) {
	if m.armed != nil && m.program != nil && h.boundaryName() == m.armed.step {
		m.armed = nil // over before it was seen
		return
	}
	at, latest := m.at(h), m.latest != nil && m.latest(h)
	if m.armed == nil && (at || latest) {
		m.armed = &armed{since: now, step: h.stepName(), host: h.Host}
	}
	if latest {
		m.armed.due = true
	}
}

// hasCome reports whether the moment has come.
func (m *moment) hasCome(now time.Time, runs func(host string, program []string) bool) bool {
	a := m.armed
	switch {
	case a == nil:
		return false
	case a.due:
		return true
	case now.Sub(a.since) < m.wait:
		return false
	}
	return m.program == nil || runs(a.host, m.program)
}

// moments holds the moments that are still to come.
type moments struct {
	left []*moment
	// passed has the moments of left that passed while another one took effect.
	passed map[string]bool
}

func newMoments(list ...*moment) *moments {
	return &moments{left: slices.Clone(list), passed: map[string]bool{}}
}

// noteEvent notes an event.
func (ms *moments) noteEvent(h happening, now time.Time) {
	for _, m := range ms.left {
		m.noteEvent(h, now)
	}
}

// takeDue returns a moment that has come, if there is one, and removes it from left.
func (ms *moments) takeDue(now time.Time, runs func(host string, program []string) bool) *moment {
	i := slices.IndexFunc(ms.left, func(m *moment) bool { return m.hasCome(now, runs) })
	if i < 0 {
		return nil
	}
	m := ms.left[i]
	ms.left = slices.Delete(ms.left, i, i+1)
	return m
}

// endRun records the end of a run and all events until then. A moment that came while the
// run ended has passed, if it is only an event.
func (ms *moments) endRun(journal []happening) {
	for _, m := range ms.left {
		m.armed = nil
		for _, h := range journal {
			if m.at(h) && m.wait == 0 && m.program == nil {
				ms.passed[m.name] = true
			}
		}
	}
}

// listMissing are the moments that never came.
func (ms *moments) listMissing() []string {
	var names []string
	for _, m := range ms.left {
		if !ms.passed[m.name] {
			names = append(names, m.name)
		}
	}
	return names
}

// listBoundaries returns the boundaries of a run, in order, each once.
func listBoundaries(run []happening) []string {
	var out []string
	for _, h := range run {
		if b := h.boundaryName(); b != "" && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

// randomInstants returns n random instants of an undisturbed run, spread over all of it. A
// run that is interrupted repeatedly is slower. Therefore an instant is defined by the
// number of steps that had ended before it, and the time since the last one.
func randomInstants(run []happening, random *rand.Rand, n int) []*moment {
	run = slices.DeleteFunc(slices.Clone(run), func(h happening) bool { return h.Time.IsZero() }) // the result
	begin, length := run[0].Time, run[len(run)-1].Time.Sub(run[0].Time)
	all := listBoundaries(run)
	last, _, _ := strings.Cut(all[len(all)-1], "@")
	seen := map[string]bool{} // in the runs to come
	var out []*moment
	for range n {
		t := begin.Add(time.Duration(random.Int64N(int64(length))))
		ended, since := 0, begin
		for _, h := range run {
			if h.Time.After(t) {
				break
			}
			if h.boundaryName() != "" {
				ended, since = ended+1, h.Time
			}
		}
		out = append(out, &moment{
			name: fmt.Sprintf("%.1f s after step %d of %d", t.Sub(since).Seconds(), ended, len(all)),
			at: func(h happening) bool {
				if b := h.boundaryName(); b != "" {
					seen[b] = true
				}
				// A resumed run has reached this point when its steps begin.
				return len(seen) >= ended && (ended == 0 || strings.HasPrefix(h.Type, "step."))
			},
			wait:   t.Sub(since),
			latest: func(h happening) bool { return h.beginsTask(last) },
		})
	}
	return out
}

// momentsWithin returns random moments within steps that must not be interrupted, and
// within transfers of an undisturbed run: phases of kubeadm, all or the given number, and
// parts of blobs.
func momentsWithin(run []happening, random *rand.Rand, phases, transfers int) []*moment {
	var kubeadm, blobs []string
	note := func(list *[]string, step string) {
		if !slices.Contains(*list, step) {
			*list = append(*list, step)
		}
	}
	for _, h := range run {
		switch {
		case h.isTransferring():
			note(&blobs, h.stepName())
		case isPhase(h) && h.Outcome == "changed":
			note(&kubeadm, h.stepName())
		}
	}
	random.Shuffle(len(kubeadm), func(i, j int) { kubeadm[i], kubeadm[j] = kubeadm[j], kubeadm[i] })
	var out []*moment
	for _, step := range kubeadm[:min(phases, len(kubeadm))] {
		task, host, _ := strings.Cut(step, "@")
		out = append(out, inPhase(task, host))
	}
	for range transfers {
		if len(blobs) == 0 {
			break
		}
		step, percent := blobs[random.IntN(len(blobs))], random.Int64N(80)
		out = append(out, &moment{
			name: fmt.Sprintf("%d %% through a blob of %s", percent, step),
			at: func(h happening) bool {
				return h.isTransferring() && h.stepName() == step && h.Done*100 >= h.Total*percent
			},
		})
	}
	return out
}

// isPhase reports whether a step that ended is a phase of kubeadm: a program, and not the
// wait for the API or for the kubelet.
func isPhase(h happening) bool {
	if h.boundaryName() == "" || slices.Contains([]string{"kubeadm.init.wait", "kubeadm.init.serving", "join.bootstrap"}, h.Task) {
		return false
	}
	return strings.HasPrefix(h.Task, "kubeadm.init.") || h.Task == "join.preflight" || h.Task == "join.kubelet-start"
}

// keptWork compares a failed run with the resumed one: how many steps on hosts other than
// one were not repeated, and which steps were.
func keptWork(first, second []happening, but string) (kept int, lost []string) {
	for _, h := range first {
		if h.boundaryName() == "" || h.Outcome != "changed" || h.Host == but || h.Host == "" {
			continue
		}
		again := slices.ContainsFunc(second, func(g happening) bool { return g.boundaryName() == h.stepName() && g.Outcome == "changed" })
		if again {
			lost = append(lost, h.stepName())
			continue
		}
		kept++
	}
	return kept, lost
}
