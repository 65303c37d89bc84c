package op

import "regexp"

// StaticPodRestart makes the program of a static pod read files that it reads only at its
// start. A program that was started before one of the files was created is stopped, and
// the kubelet starts it again. StaticPodRestart does not wait for a program that is not
// running.
type StaticPodRestart struct {
	// Manifest is the manifest of the pod.
	Manifest string `json:"manifest"`
	// Command is the command of the pod, if its manifest does not contain it in the form
	// that kubeadm uses.
	Command []string `json:"command,omitempty"`
	// AfterEnd is the name of another program in a static pod, on which this one depends. If
	// it was started before one of the files was created, it has to end first.
	AfterEnd string `json:"afterEnd,omitempty"`
	// AtOnce kills the program: as the first process of its container it may ignore a
	// signal to stop, and its clients connect again.
	AtOnce bool     `json:"atOnce,omitempty"`
	Files  []string `json:"files"`
	// TimeoutSeconds limits the wait.
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// KindStaticPodRestart is the kind of StaticPodRestart.
const KindStaticPodRestart Kind = "pod-restart"

// Kind is KindStaticPodRestart.
func (StaticPodRestart) Kind() Kind { return KindStaticPodRestart }

// Target is the manifest of the pod.
func (o StaticPodRestart) Target() string { return o.Manifest }

// TriggerReload makes the program of a static pod read the current version of a file that it
// follows automatically, without a restart. The file is touched until the program has
// read it twice since: the first read may have begun before the change. A program that
// was started after the file was created has read it.
type TriggerReload struct {
	// Manifest is the manifest of the pod.
	Manifest string `json:"manifest"`
	File     string `json:"file"`
	// Metrics is the command that prints the metrics of the program. Queue is the name of
	// its queue for readings of File.
	Metrics []string `json:"metrics"`
	Queue   string   `json:"queue"`
	// TimeoutSeconds limits the wait.
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// KindTriggerReload is the kind of TriggerReload.
const KindTriggerReload Kind = "reload"

// Kind is KindTriggerReload.
func (TriggerReload) Kind() Kind { return KindTriggerReload }

// Target is the file.
func (r TriggerReload) Target() string { return r.File }

// PodHosts updates a name in the hosts files of pods in the host network. A kubelet
// copies the hosts file of the host for each of these pods at their start, and never
// updates the copy. PodHosts writes the copy in place, as the kubelet would write it now,
// so that no pod must restart: programs read the file again for each lookup.
type PodHosts struct {
	Name string `json:"name"`
	// Address is the address in the hosts file, "" if it has none.
	Address string `json:"address,omitempty"`
}

// KindPodHosts is the kind of PodHosts.
const KindPodHosts Kind = "pod-hosts"

func (PodHosts) Kind() Kind { return KindPodHosts }

func (o PodHosts) Target() string { return o.Name }

// PodLogs lists the logs of the cluster's own pods on a host: their names below
// /var/log/pods, as a JSON list in Result.Output, newest first, at most Most.
type PodLogs struct {
	Most int `json:"most"`
}

// KindPodLogs is the kind of PodLogs.
const KindPodLogs Kind = "pod-logs"

// Kind is KindPodLogs.
func (PodLogs) Kind() Kind { return KindPodLogs }

// Target is the same for all.
func (PodLogs) Target() string { return "logs of pods" }

// PodLog returns the end of one of these logs in Result.Output, at most Bytes. It follows
// no link, except from the log itself to the log that Docker writes.
type PodLog struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// KindPodLog is the kind of PodLog.
const KindPodLog Kind = "pod-log"

// Kind is KindPodLog.
func (PodLog) Kind() Kind { return KindPodLog }

// Target is the name of the log.
func (o PodLog) Target() string { return o.Name }

var podLog = regexp.MustCompile(`^kube-[a-z0-9_.-]+/[a-z0-9][a-z0-9.-]*/[0-9]+\.log$`)

// IsPodLog reports whether a name has the form of a log of the cluster's own pods:
// namespace, pod and UID, then the container, then the restart count. A pod that can
// write to that directory, and root on the host, can use other names.
func IsPodLog(name string) bool { return podLog.MatchString(name) }

// ProxyChanges returns in Result.Output, as ProxyCounters in JSON, how many
// changes of endpoints the host's kube-proxy has received. If kube-proxy does
// not answer, Result.Missing is set, and the output is the reason, as text. It
// never changes anything.
type ProxyChanges struct{}

// KindProxyChanges is the kind of ProxyChanges.
const KindProxyChanges Kind = "proxy-changes"

// Kind is KindProxyChanges.
func (ProxyChanges) Kind() Kind { return KindProxyChanges }

// Target is kube-proxy.
func (ProxyChanges) Target() string { return "kube-proxy" }

// ProxyCounters are the counters of a kube-proxy since it was started.
type ProxyCounters struct {
	// Received is the number of changes of EndpointSlices that it has received.
	Received float64 `json:"received"`
	// Pending is the number of these changes that no synchronization of its rules has
	// included yet.
	Pending float64 `json:"pending"`
}
