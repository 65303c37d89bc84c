package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/status"
)

// The conditions that the prober sets. True is the normal state, except of NeedsAttention.
const (
	conditionReady        = "Ready"
	conditionEndpoint     = "EndpointAvailable"
	conditionNodes        = "NodesReady"
	conditionEtcd         = "EtcdHealthy"
	conditionCertificates = "CertificatesValid"
	conditionBackup       = "BackupRecent"
	conditionHosts        = "HostsReachable"
	conditionAttention    = "NeedsAttention"
)

// Reasons of conditions.
const (
	reasonNotCreated  = "NotCreated"
	reasonDeleting    = "Deleting"
	reasonNotProbed   = "NotProbed"
	reasonProbeFailed = "ProbeFailed"
	reasonNoAnswer    = "NoAnswer"
	reasonReady       = "NodesReady"
	reasonNotReady    = "NodesNotReady"
	reasonAnswers     = "EndpointAnswers"
	reasonNoEndpoint  = "EndpointDoesNotAnswer"
	reasonMembers     = "MembersHealthy"
	reasonUnhealthy   = "MembersUnhealthy"
	reasonNoQuorum    = "QuorumLost"
	reasonValid       = "CertificatesValid"
	reasonExpiring    = "CertificatesExpiring"
	reasonExpired     = "CertificatesExpired"
	reasonUnusable    = "CertificatesUnusable"
	reasonRecent      = "BackupsRecent"
	reasonNotRecent   = "BackupsNotRecent"
	reasonTestFailed  = "RestoreTestFailed"
	reasonReachable   = "HostsReachable"
	reasonUnreachable = "HostsUnreachable"
	reasonNoAttention = "NothingToDo"
)

// ours are the types of the conditions of the prober.
var ours = []string{
	conditionReady, conditionEndpoint, conditionNodes, conditionEtcd, conditionCertificates, conditionBackup, conditionHosts,
	conditionAttention,
}

func isOurs(kind string) bool { return slices.Contains(ours, kind) }

// An evaluation makes a status from observations.
type evaluation struct {
	shown
	object *v1alpha1.Cluster
	before []metav1.Condition
	now    time.Time
	silent bool // the API has not answered for a while
}

// evaluate returns the status of a cluster, and the time until it may change without a new observation.
func (p *Prober) evaluate(is *cluster, c *v1alpha1.Cluster, now time.Time) (shown, time.Duration) {
	is.mu.Lock()
	defer is.mu.Unlock()
	e := &evaluation{object: c, before: is.written.Conditions, now: now}
	var next time.Duration
	switch {
	case c.DeletionTimestamp != nil:
		e.set(conditionReady, metav1.ConditionUnknown, reasonDeleting, "the Cluster is being deleted")
	case !isProbed(c):
		e.set(conditionReady, metav1.ConditionFalse, reasonNotCreated, "the cluster was not created yet")
	default:
		silence := is.silence(now)
		e.silent = silence >= p.Times.Unanswered
		if !e.silent && is.apiProblem != "" {
			next = p.Times.Unanswered - silence
		}
		e.Summary = *is.written.Summary.DeepCopy()
		e.evaluateAPI(is)
		e.evaluateHosts(is)
		e.addOperations(is)
		e.addVersion(p.Newer)
	}
	e.evaluateAttention()
	sortConditions(e.Conditions)
	return e.shown, next
}

// set sets a condition. Its time changes with its status.
func (e *evaluation) set(kind string, is metav1.ConditionStatus, reason, message string) {
	condition := metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: status.LimitMessage(message, v1alpha1.MaxConditionMessage),
		ObservedGeneration: e.object.Generation, LastTransitionTime: metav1.NewTime(e.now.Truncate(time.Second)),
	}
	if was := meta.FindStatusCondition(e.before, kind); was != nil && was.Status == is {
		condition.LastTransitionTime = was.LastTransitionTime
	}
	e.Conditions = append(e.Conditions, condition)
}

// keep keeps a condition that has no new observation.
func (e *evaluation) keep(kind string) {
	if was := meta.FindStatusCondition(e.before, kind); was != nil && was.Reason != reasonNotCreated && was.Reason != reasonDeleting {
		e.set(kind, was.Status, was.Reason, was.Message)
		return
	}
	e.set(kind, metav1.ConditionUnknown, reasonNotProbed, notProbed)
}

const notProbed = "there was no probe yet"

// evaluateAPI sets the conditions that need the API.
func (e *evaluation) evaluateAPI(is *cluster) {
	e.summarizeAPI(is)
	if e.silent {
		message := "the API has not answered for a while: " + is.apiProblem
		for _, kind := range []string{conditionReady, conditionNodes} {
			e.set(kind, metav1.ConditionUnknown, reasonNoAnswer, message)
		}
		e.set(conditionEndpoint, metav1.ConditionFalse, reasonNoEndpoint, message)
		return
	}
	if is.api == nil {
		for _, kind := range []string{conditionReady, conditionNodes, conditionEndpoint} {
			e.keep(kind)
		}
		return
	}
	var wrong []string
	for _, n := range is.api.Nodes {
		if n.Ready != "Ready" {
			wrong = append(wrong, strings.TrimSuffix(n.Name+": "+n.Message, ": "))
		}
	}
	for _, kind := range []string{conditionReady, conditionNodes} {
		if len(wrong) == 0 {
			e.set(kind, metav1.ConditionTrue, reasonReady, "")
			continue
		}
		message := fmt.Sprintf("%d of %d nodes are not ready: %s", len(wrong), len(is.api.Nodes), listFirst(wrong))
		e.set(kind, metav1.ConditionFalse, reasonNotReady, message)
	}
	e.evaluateEndpoint(is)
}

// evaluateEndpoint uses the answers to this process and to the nodes.
func (e *evaluation) evaluateEndpoint(is *cluster) {
	var wrong []string
	asked := 0
	if is.hosts != nil {
		for _, h := range is.hosts.Hosts {
			if h.Endpoint != "" {
				asked++
			}
			if h.Endpoint != "" && h.Endpoint != "ok" {
				wrong = append(wrong, h.Name+": "+h.Endpoint)
			}
		}
	}
	switch here := is.api.Endpoint; {
	case len(wrong) > 0:
		e.set(conditionEndpoint, metav1.ConditionFalse, reasonNoEndpoint, "the API does not respond to nodes: "+listFirst(wrong))
	case here != "" && here != "ok" && asked == 0:
		e.set(conditionEndpoint, metav1.ConditionFalse, reasonNoEndpoint, "the endpoint does not respond: "+here)
	default:
		e.set(conditionEndpoint, metav1.ConditionTrue, reasonAnswers, "")
	}
}

// summarizeAPI sets the part of the summary about the API.
func (e *evaluation) summarizeAPI(is *cluster) {
	if is.api == nil && !e.silent {
		return // the one from before a restart
	}
	was := e.Summary.API
	api := &v1alpha1.APISummary{Reachable: !e.silent, Since: metav1.NewTime(e.now.Truncate(time.Second))}
	if was != nil && was.Reachable == api.Reachable {
		api.Since = was.Since
	}
	if is.api != nil {
		api.ObservedTime, api.Through = timeOf(is.answered), is.api.Through
	}
	e.Summary.API = api
}

// evaluateHosts sets the conditions that need connections to the hosts.
func (e *evaluation) evaluateHosts(is *cluster) {
	if is.hostsErr != nil {
		e.set(conditionHosts, metav1.ConditionUnknown, reasonProbeFailed, is.hostsErr.Error())
	} else if is.hosts == nil {
		e.keep(conditionHosts)
	}
	if is.hosts == nil {
		for _, kind := range []string{conditionEtcd, conditionCertificates} {
			e.keep(kind)
		}
		if e.object.Spec.Etcd.Backup != nil {
			e.keep(conditionBackup)
		}
		return
	}
	if is.hostsErr == nil {
		e.evaluateReachability(is.hosts)
	}
	at := metav1.NewTime(is.asked.Truncate(time.Second))
	e.evaluateEtcd(is.hosts, at)
	e.evaluateCertificates(is.hosts, at)
	e.evaluateBackups(is.hosts, at)
}

func (e *evaluation) evaluateReachability(r *inspect.HealthReport) {
	var wrong []string
	for _, h := range r.Hosts {
		if h.Problem != "" {
			wrong = append(wrong, h.Name+": "+h.Problem)
		}
	}
	switch {
	case len(wrong) > 0:
		message := fmt.Sprintf("%d of %d hosts: %s", len(wrong), len(r.Hosts)+r.Unasked, listFirst(wrong))
		e.set(conditionHosts, metav1.ConditionFalse, reasonUnreachable, message)
	case r.Unasked > 0:
		e.set(conditionHosts, metav1.ConditionUnknown, reasonProbeFailed, fmt.Sprintf("%d hosts were not queried in time", r.Unasked))
	default:
		e.set(conditionHosts, metav1.ConditionTrue, reasonReachable, "")
	}
}

func (e *evaluation) evaluateEtcd(r *inspect.HealthReport, at metav1.Time) {
	if r.Etcd.Message != "" {
		e.set(conditionEtcd, metav1.ConditionUnknown, reasonProbeFailed, r.Etcd.Message)
		return
	}
	voters, up, leader := inspect.CountVoters(r.Etcd.Members)
	e.Summary.Etcd = &v1alpha1.EtcdSummary{Members: voters, Answering: up, Quorum: voters/2 + 1, ObservedTime: at}
	switch {
	case up < voters/2+1 || leader == "":
		message := fmt.Sprintf("%d of %d members answer, and a quorum needs %d", up, voters, voters/2+1)
		e.set(conditionEtcd, metav1.ConditionFalse, reasonNoQuorum, message)
	case len(r.EtcdProblems) > 0:
		e.set(conditionEtcd, metav1.ConditionFalse, reasonUnhealthy, listProblems(r.EtcdProblems))
	default:
		e.set(conditionEtcd, metav1.ConditionTrue, reasonMembers, "")
	}
}

// evaluateCertificates shows certificates that expire soon with the reason only: they are still valid.
func (e *evaluation) evaluateCertificates(r *inspect.HealthReport, at metav1.Time) {
	e.Summary.NextCertificate = nil
	expired, unusable := false, false
	for _, c := range r.Certificates {
		unusable = unusable || c.Problem != ""
		if c.Expires.IsZero() {
			continue
		}
		expired = expired || c.Expires.Before(e.now)
		if e.Summary.NextCertificate == nil {
			e.Summary.NextCertificate = &v1alpha1.CertificateSummary{
				Name: c.Name, Host: c.Host, Expires: metav1.NewTime(c.Expires), ObservedTime: at,
			}
		}
	}
	message := listProblems(r.CertificateProblems)
	switch {
	case expired:
		e.set(conditionCertificates, metav1.ConditionFalse, reasonExpired, message)
	case unusable:
		e.set(conditionCertificates, metav1.ConditionFalse, reasonUnusable, message)
	case len(r.Certificates) == 0:
		e.set(conditionCertificates, metav1.ConditionUnknown, reasonProbeFailed, "no host was reached")
	case message != "":
		e.set(conditionCertificates, metav1.ConditionTrue, reasonExpiring, message)
	default:
		e.set(conditionCertificates, metav1.ConditionTrue, reasonValid, "")
	}
}

func (e *evaluation) evaluateBackups(r *inspect.HealthReport, at metav1.Time) {
	if !r.Backups {
		return
	}
	for _, h := range r.Schedules {
		if h.AutoSnapshotOutcome == nil {
			continue
		}
		if len(h.Kept) > 0 {
			e.addBackup(h.Kept[0].Taken, h.Host, at)
		}
		if h.Drill != nil && !h.Drill.At.IsZero() {
			verdict := v1alpha1.RestoreTestPassed
			if h.Drill.Failed != "" {
				verdict = v1alpha1.RestoreTestFailed
			}
			e.addRestoreTest(h.Drill.At, h.Host, verdict, at)
		}
	}
	switch {
	case len(r.BackupProblems) > 0:
		e.set(conditionBackup, metav1.ConditionFalse, reasonNotRecent, listProblems(r.BackupProblems))
	case len(r.Schedules) == 0:
		e.set(conditionBackup, metav1.ConditionUnknown, reasonProbeFailed, "no host with etcd was reached")
	case len(r.RestoreTestProblems) > 0:
		e.set(conditionBackup, metav1.ConditionTrue, reasonTestFailed, listProblems(r.RestoreTestProblems))
	default:
		e.set(conditionBackup, metav1.ConditionTrue, reasonRecent, "")
	}
}

// addVersion shows a newer version.
func (e *evaluation) addVersion(newer func(string) string) {
	was := e.Summary.NewerVersion
	e.Summary.NewerVersion = nil
	if newer == nil || e.object.Status.Version == "" {
		return
	}
	if version := newer(e.object.Status.Version); version != "" {
		e.Summary.NewerVersion = &v1alpha1.VersionSummary{Version: version, ObservedTime: metav1.NewTime(e.now.Truncate(time.Second))}
		if was != nil && was.Version == version {
			e.Summary.NewerVersion.ObservedTime = was.ObservedTime
		}
	}
}

// maxListed is the number of items in a message.
const maxListed = 10

// listFirst lists the first items.
func listFirst(items []string) string {
	if more := len(items) - maxListed; more > 0 {
		return strings.Join(items[:maxListed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(items, "; ")
}

// listProblems lists the first problems with their hosts.
func listProblems(list diag.List) string {
	var items []string
	for _, d := range list {
		items = append(items, strings.TrimPrefix(d.Host+": "+d.Message, ": "))
	}
	return listFirst(items)
}

// timeOf returns a time of the API.
func timeOf(t time.Time) *metav1.Time {
	out := metav1.NewTime(t.Truncate(time.Second))
	return &out
}
