package lifecycle

import (
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// minors holds the minors of etcd members in pods. It is as strict as etcd about which
// minors work together, and about two members away at a time.
type minors struct {
	is   map[string]string // by machine: "3.6"
	away map[string]bool   // by machine: it does not serve
	back bool              // etcd has received the request to downgrade
}

func newMinors() minors { return minors{is: map[string]string{}, away: map[string]bool{}} }

func (m minors) clone() minors {
	return minors{is: maps.Clone(m.is), away: maps.Clone(m.away), back: m.back}
}

// newer reports whether all members, and so the cluster, have the newer minor.
func (m minors) newer() bool {
	return len(m.is) > 0 && !slices.Contains(slices.Collect(maps.Values(m.is)), "3.6")
}

// started starts the member of a machine with its settings.
func (m *minors) started(name, settings string) *op.Error {
	minor := "3.6"
	if slices.ContainsFunc([]string{"v1.37.", "v1.38.", "v1.39."}, func(v string) bool { return strings.Contains(settings, v) }) {
		minor = "3.7"
	}
	if minor == "3.6" && m.newer() && !m.back {
		return &op.Error{Reason: op.ReasonNotServing, Message: "etcd 3.6 refuses a cluster that was one of 3.7"}
	}
	m.is[name] = minor
	m.back = m.back && slices.Contains(slices.Collect(maps.Values(m.is)), "3.7")
	return nil
}

// ends refuses to stop a member while another is away.
func (m minors) ends(name string) *op.Error {
	for other := range m.away {
		if other != name && !m.away[name] {
			return &op.Error{Reason: "Timeout", Message: "the member of " + other + " does not serve, and that of " + name + " was to be ended"}
		}
	}
	return nil
}

// etcdStarts starts a machine's etcd member with its settings.
func (m *machine) etcdStarts(e op.Exec) *op.Error {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	if m.files[etcdManifest] != m.files[settingsFile] {
		if err := m.api.minors.ends(m.name); err != nil {
			return err
		}
	}
	if err := m.api.minors.started(m.name, m.files[settingsFile]); err != nil {
		return err
	}
	m.files[etcdManifest] = m.files[settingsFile]
	if e.Name == "kubeadm-mend-etcd" {
		delete(m.api.minors.away, m.name)
	}
	return nil
}

// etcdAway reports whether the machine's etcd member is away.
func (m *machine) etcdAway() bool {
	m.api.mu.Lock()
	defer m.api.mu.Unlock()
	return m.api.minors.away[m.name]
}

// downgrades reports whether etcd still needs the request to downgrade, and sends it if
// tell is set.
func (a *api) downgrades(tell bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := a.minors.newer() && !a.minors.back
	a.minors.back = a.minors.back || is && tell
	return is
}
