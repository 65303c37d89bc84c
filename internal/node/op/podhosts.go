package op

// PodHosts updates a name in the hosts files of pods in the host network. A kubelet
// copies the hosts file of the host for each of these pods at their start, and never
// updates the copy. PodHosts writes the copy in place, as the kubelet would write it now,
// so that no pod must restart: programs read the file again for each lookup.
type PodHosts struct {
	Name string `json:"name"`
	// Address is the address in the hosts file, "" if it has none.
	Address string `json:"address,omitempty"`
}
