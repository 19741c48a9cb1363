package embedpg

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/ulikunitz/xz"
)

// unpack unpacks the .txz inside a jar to the new directory dir. It syncs everything,
// because after the rename that follows the directory counts as complete, also after a
// power cut. os.Root keeps malicious names and links inside the directory.
func unpack(ctx context.Context, archive, dir string) error {
	jar, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer jar.Close()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, entry := range jar.File {
		if strings.HasSuffix(entry.Name, ".txz") {
			return unpackEntry(ctx, entry, root)
		}
	}
	return errors.New("there are no binaries in the archive")
}

func unpackEntry(ctx context.Context, entry *zip.File, root *os.Root) error {
	packed, err := entry.Open()
	if err != nil {
		return err
	}
	defer packed.Close()
	plain, err := xz.NewReader(bufio.NewReaderSize(packed, 1<<20)) // it reads byte by byte
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ctx.Err() == nil; {
		header, err := files.Next()
		if err == io.EOF {
			return syncTree(root)
		}
		if err != nil {
			return err
		}
		if err := unpackFile(header, files, root); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
	return ctx.Err()
}

func unpackFile(header *tar.Header, content io.Reader, root *os.Root) error {
	name := path.Clean(header.Name)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		// Readable by all under any umask: PostgreSQL runs as another user.
		return errors.Join(err, file.Chmod(0o644|fs.FileMode(header.Mode)&0o111), file.Sync(), file.Close())
	default:
		return fmt.Errorf("unexpected kind of entry %q", header.Typeflag)
	}
}

func syncTree(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if err := root.Chmod(name, 0o755); err != nil {
			return err
		}
		dir, err := root.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(dir.Sync(), dir.Close())
	})
}
