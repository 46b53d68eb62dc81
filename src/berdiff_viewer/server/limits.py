"""How much the server takes on. What goes beyond is refused in one sentence, before it costs anything."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Of uploads, of work and of what is kept."""

    upload_bytes: int = 512 * MIB  # of one request
    upload_files: int = 4096  # of one upload, those in archives counted
    unpacked_bytes: int = 2048 * MIB  # of one upload, after unpacking
    stored_bytes: int = 8192 * MIB  # of all uploads together
    pixels: int = 2**28  # of one image or volume: a thousand slices of 512x512
    side: int = 2**15  # pixels along one side
    items: int = 200  # of one session
    samples: int = 64  # masks of one job
    steps: int = 1000
    pool: int = 256
    representatives: int = 8
    pool_bytes: int = 1024 * MIB  # of the masks of one job, a byte per sample, target and pixel
    samples_file_bytes: int = 512 * MIB  # single samples of a larger result are left out of a download
    jobs: int = 8  # that wait (--queue)
    jobs_per_session: int = 4  # that wait or run
    results: int = 8  # kept per session
    results_bytes: int = 1024 * MIB  # kept of all sessions
    images_bytes: int = 1536 * MIB  # of opened images kept in memory
    sessions: int = 256
    session_seconds: float = 3600.0  # without a request
    abandoned_seconds: float = 20.0  # a job that nobody asks for is cancelled
    json_bytes: int = 64 * 1024  # of a request without files
    mask_bytes: int = 96 * MIB  # of a request with a rater's mask

    def shown(self) -> dict[str, int]:
        """What a client should know."""
        names = ("upload_bytes", "upload_files", "unpacked_bytes", "pixels", "items", "samples", "steps", "pool")
        return {name: getattr(self, name) for name in (*names, "representatives", "jobs", "jobs_per_session")}
