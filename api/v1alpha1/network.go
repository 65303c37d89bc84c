package v1alpha1

// Network is the pod network.
type Network struct {
	// `flannel`, or `none` to install your own. `calico`, `cilium`, `kube-ovn` are not
	// supported yet. Cannot be changed. Default: `flannel`.
	// +kubebuilder:validation:Enum=flannel;none
	Plugin string `json:"plugin,omitempty"`
	// Pod addresses: one range, or for dual stack one IPv4 and one IPv6 range. A host
	// takes a `/24` (IPv6: `/64`) from it. Cannot be changed. Default:
	// `[10.244.0.0/16]`.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	PodCIDR []string `json:"podCIDR,omitempty"`
	// Service addresses, `/12` to `/28` (IPv6: `/108` to `/124`), with the IP versions
	// in the same order. Cannot be changed. Default: `[10.96.0.0/16]`.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=49
	// +listType=atomic
	ServiceCIDR []string `json:"serviceCIDR,omitempty"`
	// Settings of flannel.
	Flannel Flannel `json:"flannel,omitempty"`
}

// Flannel has the settings of the plugin flannel.
type Flannel struct {
	// `vxlan`, or `host-gw` if all nodes share one network. Default: `vxlan`.
	// +kubebuilder:validation:Enum=vxlan;host-gw
	Backend string `json:"backend,omitempty"`
	// The MTU of pod interfaces; `0` is the default of flannel. Default: `0`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 576",message="the MTU must be from 576 to 65535, or 0"
	MTU int `json:"mtu,omitempty"`
}

// DNS has settings of CoreDNS and of the hosts files.
type DNS struct {
	// Upstream servers of the cluster DNS: addresses, with `:port` if it is not 53.
	// Default: the DNS servers of each host.
	// +kubebuilder:validation:MaxItems=15
	// +listType=atomic
	Upstream []string `json:"upstream,omitempty"`
	// Zones with their own servers in the cluster DNS. The longest matching name
	// decides.
	// +listType=atomic
	Zones []DNSZone `json:"zones,omitempty"`
	// More entries, address to names, for the hosts file of every host and for the
	// cluster DNS.
	Hosts map[string][]string `json:"hosts,omitempty"`
}

// DNSZone holds the servers for some zones of the cluster DNS.
type DNSZone struct {
	// The zones: `corp.example.com`, or `10.in-addr.arpa` for addresses. They must not
	// overlap with `kubernetes.dnsDomain`.
	// +kubebuilder:validation:MinItems=1
	// +listType=atomic
	Names []string `json:"names"`
	// The servers of these zones: addresses, with `:port` if it is not 53. At most 15.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=15
	// +listType=atomic
	Servers []string `json:"servers"`
	// The longest time that CoreDNS keeps an answer of these servers. Default: `30`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CacheSeconds int `json:"cacheSeconds,omitempty"`
}
