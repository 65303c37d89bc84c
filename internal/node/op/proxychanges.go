package op

// ProxyChanges returns in Result.Output, as ProxyCounters in JSON, how many
// changes of endpoints the host's kube-proxy has received. If kube-proxy does
// not answer, Result.Missing is set, and the output is the reason, as text. It
// never changes anything.
type ProxyChanges struct{}

// ProxyCounters are the counters of a kube-proxy since it was started.
type ProxyCounters struct {
	// Received is the number of changes of EndpointSlices that it has received.
	Received float64 `json:"received"`
	// Pending is the number of these changes that no synchronization of its rules has
	// included yet.
	Pending float64 `json:"pending"`
}

// KindProxyChanges is the kind of ProxyChanges.
const KindProxyChanges Kind = "proxy-changes"

// Kind is KindProxyChanges.
func (ProxyChanges) Kind() Kind { return KindProxyChanges }

// Target is kube-proxy.
func (ProxyChanges) Target() string { return "kube-proxy" }
