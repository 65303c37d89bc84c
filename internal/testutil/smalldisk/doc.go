// Package smalldisk runs tests that fill a disk. It links into no program.
package smalldisk
