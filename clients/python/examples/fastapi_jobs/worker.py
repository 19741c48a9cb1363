"""The worker: makes reports. Start as many of these processes as you like."""

import asyncio
import logging

from reports import QUEUE, STREAM, URL, Done, Report

import tidewire


async def make(report: Report) -> Done:
    """Stands for the long work."""
    await asyncio.sleep(0.1)
    return Done(report.id, pages=report.year % 100)


async def main() -> None:
    async with tidewire.connect(URL) as tw:
        finished = tw.stream(STREAM, type=Done)

        @tw.queue(QUEUE, type=Report).worker(concurrency=4)
        async def work(job: tidewire.Job[Report]) -> None:
            if job.value.year < 2000:
                raise tidewire.Dead("there is no data of that year")
            if job.attempt > 5:
                raise tidewire.Dead("it has failed five times")
            await finished.publish(await make(job.value))
            logging.info("made %s", job.value.id)

        await work


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
