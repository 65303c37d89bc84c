package kubekey

// fate is the result for a field.
type fate int

const (
	// mapped: a Slipway field has the same meaning.
	mapped fate = iota
	// dropped: the cluster is the same without it.
	dropped
	// lost: the cluster would be different, and Slipway has no equivalent.
	lost
	// later: like lost, but Slipway will support it.
	later
)

// A field is a KubeKey field, or a block of fields with the same result.
type field struct {
	fate fate
	// text is the Slipway field, or the reason why there is none.
	text string
}

// fields has all fields of a file, by their paths without list indexes.
// docs/from-kubekey.md has them as a table.
var fields = map[string]field{
	"apiVersion":             {mapped, "apiVersion"},
	"kind":                   {mapped, "kind"},
	"metadata.name":          {mapped, "metadata.name"},
	"metadata.namespace":     {dropped, "a cluster file has no namespace"},
	"metadata.labels[]":      {mapped, "metadata.labels"},
	"metadata.annotations[]": {mapped, "metadata.annotations"},
	"status":                 {dropped, "the field describes past state"},

	"spec.hosts[].name":            {mapped, "spec.hosts[].name"},
	"spec.hosts[].address":         {mapped, "spec.hosts[].address"},
	"spec.hosts[].internalAddress": {mapped, "spec.hosts[].internalAddress"},
	"spec.hosts[].port":            {mapped, "spec.ssh.port, or ssh.port of the host"},
	"spec.hosts[].user":            {mapped, "spec.ssh.user and sudo, or ssh.user and sudo of the host"},
	"spec.hosts[].password":        {mapped, "spec.ssh.passwordFrom, or ssh.passwordFrom of the host; the password itself is not copied"},
	"spec.hosts[].privateKey":      {mapped, "spec.ssh.privateKeyFile, or ssh.privateKeyFile of the host; the key itself is not copied"},
	"spec.hosts[].privateKeyPath":  {mapped, "spec.ssh.privateKeyFile, or ssh.privateKeyFile of the host"},
	"spec.hosts[].arch":            {mapped, "spec.hosts[].arch"},
	"spec.hosts[].timeout":         {dropped, "each step has its own time limit"},
	"spec.hosts[].labels[]":        {mapped, "spec.hosts[].labels"},
	"spec.roleGroups[]":            {mapped, "spec.hosts[].roles"},

	"spec.controlPlaneEndpoint.internalLoadbalancer": {mapped, "spec.controlPlaneEndpoint.mode"},
	"spec.controlPlaneEndpoint.domain":               {mapped, "spec.controlPlaneEndpoint.domain"},
	"spec.controlPlaneEndpoint.externalDNS":          {mapped, "spec.controlPlaneEndpoint.mode: external, without an address"},
	"spec.controlPlaneEndpoint.address":              {mapped, "spec.controlPlaneEndpoint.address"},
	"spec.controlPlaneEndpoint.port":                 {mapped, "spec.controlPlaneEndpoint.port"},
	"spec.controlPlaneEndpoint.kubevip.mode": {
		mapped,
		"mode kube-vip uses ARP by default; for BGP, write the routers under `kubeVIP.bgp`",
	},

	"spec.system.ntpServers[]":                     {mapped, "spec.system.ntpServers"},
	"spec.system.timezone":                         {mapped, "spec.system.timezone"},
	"spec.system.rpms":                             {lost, "Slipway installs no packages; use a hook of phase preInstall"},
	"spec.system.debs":                             {lost, "Slipway installs no packages; use a hook of phase preInstall"},
	"spec.system.preInstall[].name":                {mapped, "spec.hooks[].name"},
	"spec.system.preInstall[].bash":                {mapped, "spec.hooks[].script, a file that is written next to the cluster file"},
	"spec.system.preInstall[].role":                {mapped, "spec.hooks[].roles"},
	"spec.system.preInstall[].materials[]":         {mapped, "spec.hooks[].materials"},
	"spec.system.postInstall[].name":               {mapped, "spec.hooks[].name"},
	"spec.system.postInstall[].bash":               {mapped, "spec.hooks[].script, a file that is written next to the cluster file"},
	"spec.system.postInstall[].role":               {mapped, "spec.hooks[].roles"},
	"spec.system.postInstall[].materials[]":        {mapped, "spec.hooks[].materials"},
	"spec.system.postClusterInstall[].name":        {mapped, "spec.hooks[].name"},
	"spec.system.postClusterInstall[].bash":        {mapped, "spec.hooks[].script, a file that is written next to the cluster file"},
	"spec.system.postClusterInstall[].role":        {mapped, "spec.hooks[].roles"},
	"spec.system.postClusterInstall[].materials[]": {mapped, "spec.hooks[].materials"},
	"spec.system.skipConfigureOS":                  {mapped, "spec.system.skipConfigure"},

	"spec.etcd.type": {
		mapped,
		"spec.etcd.type: kubeadm becomes stacked, kubekey becomes managed, external remains external",
	},
	"spec.etcd.external.endpoints[]":    {mapped, "spec.etcd.external.endpoints; they must be https"},
	"spec.etcd.external.caFile":         {mapped, "spec.etcd.external.caFile"},
	"spec.etcd.external.certFile":       {mapped, "spec.etcd.external.certFile"},
	"spec.etcd.external.keyFile":        {mapped, "spec.etcd.external.keyFile"},
	"spec.etcd.port":                    {mapped, "Slipway always uses 2379; there is no field for another port"},
	"spec.etcd.peerPort":                {mapped, "Slipway always uses 2380; there is no field for another port"},
	"spec.etcd.extraArgs[]":             {mapped, "spec.etcd.extraArgs; ETCD_LOG_LEVEL=warn becomes log-level: warn"},
	"spec.etcd.backupDir":               {lost, "Slipway uses its own directory for snapshots on hosts"},
	"spec.etcd.backupPeriod":            {mapped, "spec.etcd.backup.every"},
	"spec.etcd.keepBackupNumber":        {mapped, "spec.etcd.backup.keep"},
	"spec.etcd.backupScript":            {dropped, "Slipway puts no scripts on hosts"},
	"spec.etcd.dataDir":                 {mapped, "Slipway always uses /var/lib/etcd; there is no field for another directory"},
	"spec.etcd.heartbeatInterval":       {mapped, "spec.etcd.extraArgs[heartbeat-interval]"},
	"spec.etcd.electionTimeout":         {mapped, "spec.etcd.extraArgs[election-timeout]"},
	"spec.etcd.snapshotCount":           {mapped, "spec.etcd.extraArgs[snapshot-count]"},
	"spec.etcd.autoCompactionRetention": {mapped, "spec.etcd.extraArgs[auto-compaction-retention]"},
	"spec.etcd.metrics":                 {mapped, "spec.etcd.extraArgs[metrics]"},
	"spec.etcd.quotaBackendBytes":       {mapped, "spec.etcd.extraArgs[quota-backend-bytes]"},
	"spec.etcd.maxRequestBytes":         {mapped, "spec.etcd.extraArgs[max-request-bytes]"},
	"spec.etcd.maxSnapshots":            {mapped, "spec.etcd.extraArgs[max-snapshots]"},
	"spec.etcd.maxWals":                 {mapped, "spec.etcd.extraArgs[max-wals]"},
	"spec.etcd.logLevel":                {mapped, "spec.etcd.extraArgs[log-level]"},

	"spec.dns.dnsEtcHosts":                           {mapped, "spec.dns.hosts, which applies to pods and hosts"},
	"spec.dns.nodeEtcHosts":                          {mapped, "spec.dns.hosts, which applies to pods and hosts"},
	"spec.dns.coredns.additionalConfigs":             {lost, "Slipway writes the CoreDNS configuration; there is no field for additions"},
	"spec.dns.coredns.externalZones[].zones[]":       {mapped, "spec.dns.zones[].names"},
	"spec.dns.coredns.externalZones[].nameservers[]": {mapped, "spec.dns.zones[].servers"},
	"spec.dns.coredns.externalZones[].cache":         {mapped, "spec.dns.zones[].cacheSeconds"},
	"spec.dns.coredns.externalZones[].rewrite":       {lost, "there is no field for rewriting names"},
	"spec.dns.coredns.rewriteBlock":                  {lost, "there is no field for rewriting names"},
	"spec.dns.coredns.upstreamDNSServers[]":          {mapped, "spec.dns.upstream"},
	"spec.dns.nodelocaldns.externalZones":            {later, "Slipway has no DNS cache for nodes yet"},

	"spec.kubernetes.type":                         {mapped, "only kubernetes: Slipway does not install k3s or k8e"},
	"spec.kubernetes.version":                      {mapped, "spec.kubernetes.version"},
	"spec.kubernetes.clusterName":                  {dropped, "Slipway uses metadata.name as the name of the cluster everywhere"},
	"spec.kubernetes.dnsDomain":                    {mapped, "spec.kubernetes.dnsDomain"},
	"spec.kubernetes.disableKubeProxy":             {mapped, "spec.kubernetes.proxyMode: none"},
	"spec.kubernetes.masqueradeAll":                {lost, "there is no field for kube-proxy's masqueradeAll"},
	"spec.kubernetes.maxPods":                      {mapped, "spec.kubernetes.kubelet.config[maxPods]"},
	"spec.kubernetes.podPidsLimit":                 {mapped, "spec.kubernetes.kubelet.config[podPidsLimit]"},
	"spec.kubernetes.nodeCidrMaskSize":             {mapped, "spec.kubernetes.controllerManager.extraArgs[node-cidr-mask-size], or -ipv4"},
	"spec.kubernetes.nodeCidrMaskSizeIPv6":         {mapped, "spec.kubernetes.controllerManager.extraArgs[node-cidr-mask-size-ipv6]"},
	"spec.kubernetes.apiserverCertExtraSans[]":     {mapped, "spec.kubernetes.apiServer.certSANs"},
	"spec.kubernetes.proxyMode":                    {mapped, "spec.kubernetes.proxyMode"},
	"spec.kubernetes.autoRenewCerts":               {mapped, "spec.kubernetes.certificates.autoRenew"},
	"spec.kubernetes.nodelocaldns":                 {later, "Slipway has no DNS cache for nodes yet"},
	"spec.kubernetes.containerManager":             {mapped, "spec.containerRuntime.type"},
	"spec.kubernetes.containerRuntimeEndpoint":     {dropped, "Slipway sets the runtime socket automatically"},
	"spec.kubernetes.nodeFeatureDiscovery.enabled": {later, "there is no add-on with this name; install the chart under spec.addons"},
	"spec.kubernetes.kata.enabled":                 {lost, "Slipway does not set up Kata containers"},
	"spec.kubernetes.audit.enabled":                {mapped, "spec.kubernetes.audit"},
	"spec.kubernetes.apiserverArgs[]":              {mapped, "spec.kubernetes.apiServer.extraArgs"},
	"spec.kubernetes.controllerManagerArgs[]":      {mapped, "spec.kubernetes.controllerManager.extraArgs"},
	"spec.kubernetes.schedulerArgs[]":              {mapped, "spec.kubernetes.scheduler.extraArgs"},
	"spec.kubernetes.kubeletArgs[]":                {mapped, "spec.kubernetes.kubelet.extraArgs"},
	"spec.kubernetes.kubeProxyArgs":                {lost, "there is no field for kube-proxy's arguments"},
	"spec.kubernetes.featureGates[]":               {mapped, "spec.kubernetes.featureGates"},
	"spec.kubernetes.kubeletConfiguration":         {mapped, "spec.kubernetes.kubelet.config"},
	"spec.kubernetes.kubeProxyConfiguration":       {lost, "there is no field for the kube-proxy configuration except proxyMode"},
	"spec.kubernetes.nvidiaRuntime":                {lost, "Slipway does not set up the NVIDIA runtime"},

	"spec.network.plugin":                {mapped, "spec.network.plugin"},
	"spec.network.kubePodsCIDR":          {mapped, "spec.network.podCIDR"},
	"spec.network.kubeServiceCIDR":       {mapped, "spec.network.serviceCIDR"},
	"spec.network.calico":                {mapped, "nothing yet: Calico settings are lost; without Calico they are dropped"},
	"spec.network.flannel.backendMode":   {mapped, "spec.network.flannel.backend"},
	"spec.network.flannel.directRouting": {mapped, "nothing: direct routing of flannel is lost; without flannel it is dropped"},
	"spec.network.kubeovn":               {mapped, "nothing yet: Kube-OVN settings are lost; without Kube-OVN they are dropped"},
	"spec.network.multusCNI.enabled":     {later, "Slipway cannot install Multus yet"},
	"spec.network.hybridnet":             {mapped, "nothing: Hybridnet settings are lost; without Hybridnet they are dropped"},

	"spec.storage.openebs.basePath": {dropped, "Slipway does not install OpenEBS"},

	"spec.registry.type": {
		mapped,
		"nothing: Slipway uses the Distribution registry, and Harbor is lost; without hosts in the group registry it is dropped",
	},
	"spec.registry.registryMirrors[]":     {mapped, "spec.registry.mirrors[docker.io]"},
	"spec.registry.insecureRegistries[]":  {mapped, "spec.registry.insecure"},
	"spec.registry.privateRegistry":       {dropped, "images of the cluster components come from the bundle, not from a registry"},
	"spec.registry.namespaceOverride":     {dropped, "images of the cluster components come from the bundle, not from a registry"},
	"spec.registry.namespaceRewrite":      {dropped, "images of the cluster components come from the bundle, not from a registry"},
	"spec.registry.remoteMirrors[]":       {mapped, "spec.registry.mirrors"},
	"spec.registry.auths[].username":      {mapped, "spec.registry.auths[].username"},
	"spec.registry.auths[].password":      {mapped, "spec.registry.auths[].passwordFrom; the password itself is not copied"},
	"spec.registry.auths[].skipTLSVerify": {mapped, "spec.registry.insecure"},
	"spec.registry.auths[].plainHTTP":     {mapped, "spec.registry.insecure"},
	"spec.registry.auths[].certsPath":     {lost, "write the path of its ca.crt at spec.registry.auths: caFile"},
	"spec.registry.auths[].caFile":        {mapped, "spec.registry.auths[].caFile"},
	"spec.registry.auths[].certFile":      {later, "there is no field for client certificates of a registry yet"},
	"spec.registry.auths[].keyFile":       {later, "there is no field for client certificates of a registry yet"},
	"spec.registry.plainHTTP":             {dropped, "images of the cluster components come from the bundle, not from a registry"},
	"spec.registry.containerdDataDir":     {mapped, "Slipway always uses /var/lib/containerd; there is no field for another directory"},
	"spec.registry.dockerDataDir":         {mapped, "nothing: without docker it is dropped, with docker it is lost"},
	"spec.registry.dataRoot":              {mapped, "nothing: without docker it is dropped, with docker it is lost"},
	"spec.registry.registryDataDir": {
		lost,
		"only Harbor uses it, and Slipway does not install Harbor; see spec.registry.private.directory",
	},
	"spec.registry.bridgeIP": {mapped, "nothing: without docker it is dropped, with docker it is lost"},
	"spec.addons[]":          {later, "add-ons are not converted yet; write them under spec.addons"},
	"spec.kubesphere":        {later, "Slipway cannot install KubeSphere yet; install it with helm"},
}
