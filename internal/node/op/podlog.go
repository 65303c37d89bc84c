package op

import "regexp"

// PodLogs lists the logs of the cluster's own pods on a host: their names below
// /var/log/pods, as a JSON list in Result.Output, newest first, at most Most.
type PodLogs struct {
	Most int `json:"most"`
}

// PodLog returns the end of one of these logs in Result.Output, at most Bytes. It follows
// no link, except from the log itself to the log that Docker writes.
type PodLog struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

var podLog = regexp.MustCompile(`^kube-[a-z0-9_.-]+/[a-z0-9][a-z0-9.-]*/[0-9]+\.log$`)

// IsPodLog reports whether a name has the form of a log of the cluster's own pods:
// namespace, pod and UID, then the container, then the restart count. A pod that can
// write to that directory, and root on the host, can use other names.
func IsPodLog(name string) bool { return podLog.MatchString(name) }

// The kinds.
const (
	KindPodLogs Kind = "pod-logs"
	KindPodLog  Kind = "pod-log"
)

// Kind is KindPodLogs.
func (PodLogs) Kind() Kind { return KindPodLogs }

// Target is the same for all.
func (PodLogs) Target() string { return "logs of pods" }

// Kind is KindPodLog.
func (PodLog) Kind() Kind { return KindPodLog }

// Target is the name of the log.
func (o PodLog) Target() string { return o.Name }
