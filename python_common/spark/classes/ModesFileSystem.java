import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** The local file system. It sets modes by system calls, where Hadoop's starts a `chmod` for each file and directory. */
public class ModesFileSystem extends LocalFileSystem {
    public ModesFileSystem() {
        super(new Raw());
    }

    private static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            // Without the sticky bit, which `toString` of a permission shows in the place of an `x`.
            String mode = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(mode));
        }
    }
}
