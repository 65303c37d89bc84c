package lifecycletest

import (
	"maps"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/node/op"
)

// EtcdMinors holds the minors of etcd members in pods. It is as strict as etcd about which
// minors work together, and about two members away at a time.
type EtcdMinors struct {
	versions    map[string]string // by host: "3.6"
	Away        map[string]bool   // by host: it does not serve
	downgrading bool              // etcd has received the request to downgrade
}

func newMinors() EtcdMinors {
	return EtcdMinors{versions: map[string]string{}, Away: map[string]bool{}}
}

func (m EtcdMinors) clone() EtcdMinors {
	return EtcdMinors{versions: maps.Clone(m.versions), Away: maps.Clone(m.Away), downgrading: m.downgrading}
}

// isNewer reports whether all members, and so the cluster, have the newer minor.
func (m EtcdMinors) isNewer() bool {
	return len(m.versions) > 0 && !slices.Contains(slices.Collect(maps.Values(m.versions)), "3.6")
}

// startMember starts the member of a host with its settings.
func (m *EtcdMinors) startMember(name, settings string) *op.Error {
	minor := "3.6"
	if slices.ContainsFunc([]string{"v1.37.", "v1.38.", "v1.39."}, func(v string) bool { return strings.Contains(settings, v) }) {
		minor = "3.7"
	}
	if minor == "3.6" && m.isNewer() && !m.downgrading {
		return &op.Error{Reason: op.ReasonNotServing, Message: "etcd 3.6 refuses a cluster that was one of 3.7"}
	}
	m.versions[name] = minor
	m.downgrading = m.downgrading && slices.Contains(slices.Collect(maps.Values(m.versions)), "3.7")
	return nil
}

// checkStop refuses to stop a member while another is away.
func (m EtcdMinors) checkStop(name string) *op.Error {
	for other := range m.Away {
		if other != name && !m.Away[name] {
			return &op.Error{
				Reason: "Timeout", Message: "the member of " + other + " does not serve, and that of " + name + " would be stopped as well",
			}
		}
	}
	return nil
}

// startEtcd starts a host's etcd member with its settings.
func (m *Host) startEtcd(e op.Exec) *op.Error {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	if m.Files[EtcdManifest] != m.Files[SettingsFile] {
		if err := m.API.Minors.checkStop(m.Name); err != nil {
			return err
		}
	}
	if err := m.API.Minors.startMember(m.Name, m.Files[SettingsFile]); err != nil {
		return err
	}
	m.Files[EtcdManifest] = m.Files[SettingsFile]
	if e.Name == "kubeadm-mend-etcd" {
		delete(m.API.Minors.Away, m.Name)
	}
	return nil
}

// isEtcdAway reports whether the host's etcd member is away.
func (m *Host) isEtcdAway() bool {
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	return m.API.Minors.Away[m.Name]
}

// requestDowngrade reports whether etcd still needs the request to downgrade, and sends it if
// tell is set.
func (a *API) requestDowngrade(tell bool) bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	is := a.Minors.isNewer() && !a.Minors.downgrading
	a.Minors.downgrading = a.Minors.downgrading || is && tell
	return is
}
