package inspect

import (
	"fmt"

	"slipway.dev/slipway/internal/bytesize"
)

const (
	// MaxBehind is how many entries a member may be behind the most recent one.
	MaxBehind = 5000
	// nearQuota is the percentage of its quota from which on a member's database size
	// is a warning.
	nearQuota = 80
)

// evaluateEtcd warns about problems of an etcd that was queried.
func evaluateEtcd(e *EtcdInfo, warn warnFunc) {
	voters := 0
	versions := map[string]string{} // version → a member that has it
	for _, m := range e.Members {
		if !m.Learner {
			voters++
		}
		if !m.Answers {
			warn(idEtcdMember, m.Label(), "", "the etcd member does not respond")
			continue
		}
		versions[m.Version] = m.Label()
		evaluateMember(m, warn)
	}
	if voters > 0 && voters%2 == 0 && e.Type != "external" {
		warn(idEtcdMember, "", "", "etcd has %d members: use an odd number, "+
			"because one member less tolerates as many failures", voters)
	}
	if len(versions) > 1 {
		warn(idEtcdMember, "", "", "the etcd members have different versions: %s", listVersions(e.Members))
	}
}

// listVersions lists each member with its version, in the order of members.
func listVersions(members []EtcdMember) (text string) {
	for _, m := range members {
		if m.Answers {
			text += fmt.Sprintf(", %s %s", m.Label(), m.Version)
		}
	}
	return text[len(", "):]
}

// evaluateMember warns about problems of a member that responds.
func evaluateMember(m EtcdMember, warn warnFunc) {
	for _, alarm := range m.Alarms {
		hint := ""
		switch alarm {
		case "NOSPACE":
			hint = "free space, because nothing can be written until the alarm is cleared: slipway etcd defrag"
		case "CORRUPT":
			hint = "remove the member and add it again: its data differs from the data of the other members"
		}
		warn(idEtcdMember, m.Label(), hint, "etcd reports alarm %s", alarm)
	}
	for _, said := range m.Errors {
		warn(idEtcdMember, m.Label(), "", "etcd reports: %s", said)
	}
	if len(m.Errors) == 0 && m.leader == 0 {
		warn(idEtcdMember, m.Label(), "", "the etcd member has no leader")
	}
	if m.Behind > MaxBehind {
		warn(idEtcdMember, m.Label(), "check whether its disk or network is slow", "the etcd member is %d entries behind", m.Behind)
	}
	if m.QuotaBytes > 0 && m.DBBytes*100 >= m.QuotaBytes*nearQuota {
		warn(idEtcdMember, m.Label(), "defragment the database: slipway etcd defrag",
			"its database uses %s of its quota of %s; when it is full, nothing can be written to the cluster",
			bytesize.Format(m.DBBytes), bytesize.Format(m.QuotaBytes))
	}
}
