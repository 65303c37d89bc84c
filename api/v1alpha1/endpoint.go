package v1alpha1

// EndpointMode selects how nodes reach the control plane.
// +kubebuilder:validation:Enum=none;external;haproxy;updater;keepalived;kube-vip
type EndpointMode string

// The endpoint modes.
const (
	EndpointNone       EndpointMode = "none"
	EndpointExternal   EndpointMode = "external"
	EndpointHAProxy    EndpointMode = "haproxy"
	EndpointUpdater    EndpointMode = "updater"
	EndpointKeepalived EndpointMode = "keepalived"
	EndpointKubeVIP    EndpointMode = "kube-vip"
)

// ControlPlaneEndpoint is the name and address of the API.
type ControlPlaneEndpoint struct {
	// `none`: the control plane itself; only for one control plane. `external`: your
	// own load balancer. `haproxy`: a load balancer on every worker. `updater`: a
	// Service with its own address. `keepalived`, `kube-vip`: an address that one of
	// the control planes holds. The mode can be changed. Default: `none`; `haproxy` for
	// several control planes.
	Mode EndpointMode `json:"mode,omitempty"`
	// The name of the endpoint, in the hosts file of every host and in the
	// certificates. Cannot be changed. Default: `api.NAME.internal`.
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain,omitempty"`
	// With `external`: the address of the load balancer; required, unless every host
	// resolves your own `domain`. With `keepalived` and `kube-vip`: a free address in
	// the network of the control planes; required. With `updater`: one of the addresses
	// that the API server assigns last. Default: with `updater` the second address of
	// `serviceCIDR`.
	Address string `json:"address,omitempty"`
	// The port. Cannot be changed. Default: `6443`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int `json:"port,omitempty"`
	// With `keepalived` and `kube-vip`: the interface that holds the address. Default:
	// the interface of the internal address of the host.
	Interface string `json:"interface,omitempty"`
	// With `keepalived`: 1 to 255, different from the IDs of other VRRP routers on the
	// network. Default: the last byte of `address`.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	RouterID int `json:"routerID,omitempty"`
	// Settings of kube-vip.
	KubeVIP *KubeVIP `json:"kubeVIP,omitempty"`
}

// KubeVIP configures how kube-vip announces the address.
type KubeVIP struct {
	// `arp`; or `bgp`: every control plane has the address and announces it to routers.
	// Default: `arp`.
	// +kubebuilder:validation:Enum=arp;bgp
	Announce string `json:"announce,omitempty"`
	// BGP settings, for `announce: bgp`.
	BGP *BGP `json:"bgp,omitempty"`
}

// BGP configures how control planes announce the address to routers.
type BGP struct {
	// The autonomous system of the control planes.
	AS int `json:"as"`
	// The routers.
	// +kubebuilder:validation:MinItems=1
	// +listType=atomic
	Peers []BGPPeer `json:"peers"`
}

// BGPPeer is a router.
type BGPPeer struct {
	// The address of a router.
	Address string `json:"address"`
	// The autonomous system of the router.
	AS int `json:"as"`
	// The router is not in the network of the control planes. Default: `false`.
	MultiHop bool `json:"multiHop,omitempty"`
}
