package lifecycle

import (
	"fmt"

	"slipway.dev/slipway/internal/iec"
)

const (
	// farBehind is how many entries a member may be behind that was asked a
	// moment after the furthest one.
	farBehind = 5000
	// nearQuota is the share of its quota, in percent, from which on a member's
	// database is warned of.
	nearQuota = 80
)

// judgeEtcd tells what is wrong with an etcd that was asked.
func judgeEtcd(e *EtcdInfo, warn warner) {
	voters := 0
	versions := map[string]string{} // version → one that has it
	for _, m := range e.Members {
		if !m.Learner {
			voters++
		}
		if !m.Answers {
			warn(idEtcdMember, m.called(), "", "the etcd member does not answer")
			continue
		}
		versions[m.Version] = m.called()
		judgeMember(m, warn)
	}
	if voters > 0 && voters%2 == 0 && e.Type != "external" {
		warn(idEtcdMember, "", "", "etcd has %d members: one more or one less would survive as many losses", voters)
	}
	if len(versions) > 1 {
		warn(idEtcdMember, "", "", "etcd's members have different versions: %s", byVersion(e.Members))
	}
}

// byVersion says who has which version, in the order of members.
func byVersion(members []EtcdMember) (text string) {
	for _, m := range members {
		if m.Answers {
			text += fmt.Sprintf(", %s %s", m.called(), m.Version)
		}
	}
	return text[len(", "):]
}

// judgeMember tells what is wrong with a member that answers.
func judgeMember(m EtcdMember, warn warner) {
	for _, alarm := range m.Alarms {
		hint := ""
		switch alarm {
		case "NOSPACE":
			hint = "its database is full, and nothing can be written to the cluster: slipway etcd defrag compacts and defragments it, and takes the alarm back"
		case "CORRUPT":
			hint = "its data are not those of the others: take it off and add it again"
		}
		warn(idEtcdMember, m.called(), hint, "etcd says: alarm %s", alarm)
	}
	for _, said := range m.Errors {
		warn(idEtcdMember, m.called(), "", "etcd says: %s", said)
	}
	if len(m.Errors) == 0 && m.leader == 0 {
		warn(idEtcdMember, m.called(), "", "the etcd member has no leader")
	}
	if m.Behind > farBehind {
		warn(idEtcdMember, m.called(), "is its disk or the network to it slow?", "the etcd member is %d entries behind", m.Behind)
	}
	if m.QuotaBytes > 0 && m.DBBytes*100 >= m.QuotaBytes*nearQuota {
		warn(idEtcdMember, m.called(), "give back what is not in use: slipway etcd defrag; or allow more: quota-backend-bytes at spec.etcd.extraArgs",
			"its database has %s of the %s that it may have; when it is full nothing can be written to the cluster", iec.Bytes(m.DBBytes), iec.Bytes(m.QuotaBytes))
	}
}
