package v1alpha1

// LabelMembers is on the Lease of each process that shares clusters with others. Its value is the name of their group.
const LabelMembers = Group + "/shares-clusters"
