package op

import "regexp"

// PodLogs answers which logs a host has of the cluster's own pods: their names below
// /var/log/pods, as a list in JSON in Result.Output, the newest first and Most at most.
type PodLogs struct {
	Most int `json:"most"`
}

// PodLog answers the end of one of these logs, in Result.Output: Bytes of it at most.
// Links are followed nowhere, but from the log itself to the one that Docker writes.
type PodLog struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

var podLog = regexp.MustCompile(`^kube-[a-z0-9_.-]+/[a-z0-9][a-z0-9.-]*/[0-9]+\.log$`)

// IsPodLog reports whether a name is one that the kubelet gives a log of the cluster's
// own pods: namespace, pod and uid, then the container, then how often it was restarted.
// A pod that may write into that directory, and root on the host, choose other names.
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

// Target is the log.
func (o PodLog) Target() string { return o.Name }
