package op

// PodHosts has pods of the host's own network know a name as the hosts file
// does. A kubelet gives each of them a copy when it starts; from then on the
// copy is nobody's. It is written in place, as the kubelet would if the pod
// started now, so that nothing need be started anew: programs read the file
// again when they look a name up.
type PodHosts struct {
	Name string `json:"name"`
	// Address is what the hosts file has for it, "" if nothing.
	Address string `json:"address,omitempty"`
}
