package lifecycle

import (
	"fmt"

	"slipway.dev/slipway/internal/bytesize"
)

const (
	// farBehind is how many entries a member may be behind the most recent one.
	farBehind = 5000
	// nearQuota is the percentage of its quota from which on a member's database size
	// is a warning.
	nearQuota = 80
)

// judgeEtcd warns about problems of an etcd that was queried.
func judgeEtcd(e *EtcdInfo, warn warner) {
	voters := 0
	versions := map[string]string{} // version → a member that has it
	for _, m := range e.Members {
		if !m.Learner {
			voters++
		}
		if !m.Answers {
			warn(idEtcdMember, m.called(), "", "the etcd member does not respond")
			continue
		}
		versions[m.Version] = m.called()
		judgeMember(m, warn)
	}
	if voters > 0 && voters%2 == 0 && e.Type != "external" {
		warn(idEtcdMember, "", "", "etcd has %d members: use an odd number, "+
			"because one member less tolerates as many failures", voters)
	}
	if len(versions) > 1 {
		warn(idEtcdMember, "", "", "the etcd members have different versions: %s", byVersion(e.Members))
	}
}

// byVersion lists each member with its version, in the order of members.
func byVersion(members []EtcdMember) (text string) {
	for _, m := range members {
		if m.Answers {
			text += fmt.Sprintf(", %s %s", m.called(), m.Version)
		}
	}
	return text[len(", "):]
}

// judgeMember warns about problems of a member that responds.
func judgeMember(m EtcdMember, warn warner) {
	for _, alarm := range m.Alarms {
		hint := ""
		switch alarm {
		case "NOSPACE":
			hint = "free space, because nothing can be written until the alarm is cleared: slipway etcd defrag"
		case "CORRUPT":
			hint = "remove the member and add it again: its data differs from the data of the other members"
		}
		warn(idEtcdMember, m.called(), hint, "etcd reports alarm %s", alarm)
	}
	for _, said := range m.Errors {
		warn(idEtcdMember, m.called(), "", "etcd reports: %s", said)
	}
	if len(m.Errors) == 0 && m.leader == 0 {
		warn(idEtcdMember, m.called(), "", "the etcd member has no leader")
	}
	if m.Behind > farBehind {
		warn(idEtcdMember, m.called(), "check whether its disk or network is slow", "the etcd member is %d entries behind", m.Behind)
	}
	if m.QuotaBytes > 0 && m.DBBytes*100 >= m.QuotaBytes*nearQuota {
		warn(idEtcdMember, m.called(), "defragment the database: slipway etcd defrag",
			"its database uses %s of its quota of %s; when it is full, nothing can be written to the cluster",
			bytesize.Bytes(m.DBBytes), bytesize.Bytes(m.QuotaBytes))
	}
}
