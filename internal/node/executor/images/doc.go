// Package images executes operations on container images and registries. Linux only.
package images
