package controlplane

// HasFields is for tests with a server.
var HasFields = hasFields
