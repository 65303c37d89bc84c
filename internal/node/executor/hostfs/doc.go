// Package hostfs executes operations on files, directories, blobs and archives. Linux
// only.
package hostfs
